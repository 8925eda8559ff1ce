from __future__ import annotations

import math

import pytest
import torch

from phcgnn.algebra import Algebra
from phcgnn.nn import PHMLinear
from phcgnn.nn.start import RULE_STARTS, WEIGHT_STARTS, start_rule

OUT, IN = 480, 240
GLOROT, HE = 2 / (OUT + IN), 2 / IN


@pytest.mark.parametrize(
    "n, expected", [(1, "real"), (2, "complex"), (3, "cyclic:3"), (4, "quaternion"), (5, "cyclic:5"), (8, "cyclic:8")]
)
def test_auto_is_the_start_of_the_paper(n, expected):
    assert start_rule("auto", n, n) == Algebra.named(expected)


def test_uniform_for_other_numbers_of_terms():
    assert start_rule("auto", 2, 5).terms == 5


# What the table in phcgnn.nn.start says.
TABLE = [
    (weight, rule, base, gain)
    for rule, single in (("auto", True), ("cyclic", True), ("uniform", False))
    for weight, base, gain in (
        ("phm", GLOROT, (lambda n: 1) if single else (lambda n: n / 3)),
        ("phm-he", HE, (lambda n: 1) if single else (lambda n: n / 3)),
        ("glorot", GLOROT, (lambda n: n) if single else (lambda n: n**2 / 3)),
        ("he", HE, (lambda n: n) if single else (lambda n: n**2 / 3)),
        ("folded-glorot", GLOROT, lambda n: 1),
        ("folded-he", HE, lambda n: 1),
    )
]


@pytest.mark.parametrize("n", [1, 2, 4, 5, 8, 16])
@pytest.mark.parametrize("weight, rule, base, gain", TABLE, ids=lambda value: value if isinstance(value, str) else "")
def test_variance_of_the_folded_weight(n, weight, rule, base, gain):
    """Averaged over the entries and over draws; the tolerance is five standard errors of the estimate."""
    draws = 60 if rule == "uniform" and n <= 2 else 12
    layer = PHMLinear(IN, OUT, n=n, rule_start=rule, weight_start=weight)
    means = []
    for _ in range(draws):
        layer.reset_parameters()
        means.append(layer.dense_weight().detach().double().square().mean().item())
    mean = sum(means) / draws
    spread = math.sqrt(sum((m - mean) ** 2 for m in means) / (draws - 1) / draws)
    assert abs(mean - base * gain(n)) < 5 * spread + 1e-3 * mean


def test_every_start_is_in_the_table():
    assert {weight for weight, *_ in TABLE} == set(WEIGHT_STARTS)
    assert {rule for _, rule, *_ in TABLE} == set(RULE_STARTS)


@pytest.mark.parametrize("terms", [1, 2, 4, 7])
def test_the_polar_start_is_algorithm_one(terms):
    """Magnitude chi with `terms` degrees of freedom times sigma, uniform phase, isotropic imaginary direction."""
    weight, constants = torch.empty(terms, 300, 200, dtype=torch.float64), torch.empty(terms, 2, 2)
    with torch.no_grad():
        WEIGHT_STARTS["phm"](weight, constants)
    sigma = math.sqrt(2 / (terms * 500))
    magnitude = weight.norm(dim=0) / sigma
    chi_mean = math.sqrt(2) * math.exp(math.lgamma((terms + 1) / 2) - math.lgamma(terms / 2))
    assert magnitude.mean().item() == pytest.approx(chi_mean, rel=0.01)
    assert magnitude.square().mean().item() == pytest.approx(terms, rel=0.02)
    if terms == 1:
        assert (weight > 0).double().mean().item() == pytest.approx(0.5, abs=0.01)
        return
    cosine = weight[0] / weight.norm(dim=0)
    phase = torch.acos(cosine)  # uniform on [0, pi], as |theta| is
    assert phase.mean().item() == pytest.approx(math.pi / 2, rel=0.01)
    assert phase.var().item() == pytest.approx(math.pi**2 / 12, rel=0.02)
    direction = weight[1:] / weight[1:].norm(dim=0)
    moments = torch.einsum("iab,jab->ij", direction, direction) / direction[0].numel()
    torch.testing.assert_close(moments, torch.eye(terms - 1, dtype=torch.float64) / (terms - 1), atol=0.01, rtol=0.02)


def test_folded_starts_follow_the_rule_that_is_there():
    layer = PHMLinear(IN, OUT, n=4, rule=Algebra(10 * torch.rand(4, 4, 4)), weight_start="folded-glorot")
    assert layer.dense_weight().square().mean().item() == pytest.approx(GLOROT, rel=0.1)


def test_folded_starts_refuse_a_zero_rule():
    with pytest.raises(ValueError, match="not zero everywhere"):
        PHMLinear(4, 4, n=2, rule=Algebra(torch.zeros(2, 2, 2)), weight_start="folded-glorot")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("weight_start", WEIGHT_STARTS)
def test_starts_in_every_precision(weight_start, dtype):
    layer = PHMLinear(64, 64, n=4, weight_start=weight_start, dtype=dtype)
    assert layer.weight.dtype == dtype
    assert layer.weight.isfinite().all()
    assert layer.weight.float().std() > 0.01
