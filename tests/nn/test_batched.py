from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from phcgnn import PHCGNN
from phcgnn.functional import kronecker_sum
from phcgnn.nn import MultiplicationRule, PHMLinear, batched_weights
from phcgnn.nn.batched import kronecker_sums


def model(shared=False, terms=None, dtype=torch.float64):
    rule = MultiplicationRule("quaternion") if shared else None
    options = {"n": 4, "dtype": dtype} | ({"rule": rule} if shared else {"terms": terms})
    return nn.Sequential(
        PHMLinear(8, 12, **options),
        nn.Tanh(),
        PHMLinear(12, 12, **options),
        nn.Tanh(),
        PHMLinear(12, 12, **options),
        PHMLinear(12, 8, bias=False, **options),
    ).to(dtype)


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"terms": 3}], ids=str)
def test_equals_building_one_by_one(options):
    one = model(**options)
    other = copy.deepcopy(one)
    x = torch.randn(7, 8, dtype=torch.float64)
    y = one(x)
    with batched_weights(other):
        found = other(x)
    torch.testing.assert_close(found, y, rtol=1e-12, atol=1e-12)
    pull = torch.randn_like(y)
    wanted, got = (
        torch.autograd.grad(y, list(one.parameters()), pull),
        torch.autograd.grad(found, list(other.parameters()), pull),
    )
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_whatever_happens_nothing_stays():
    layers = model()

    def fail():
        assert all(layer._built is not None for layer in layers if isinstance(layer, PHMLinear))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), batched_weights(layers):
        fail()
    assert all(layer._built is None for layer in layers if isinstance(layer, PHMLinear))
    copy.deepcopy(layers)
    with batched_weights(nn.Linear(2, 2)):  # nothing to build
        pass


def test_the_sums_are_those_of_each(dtype, tol):
    constants, weights = torch.randn(5, 3, 2, 2, dtype=dtype), torch.randn(5, 3, 4, 7, dtype=dtype)
    expected = torch.stack([kronecker_sum(c, w) for c, w in zip(constants, weights, strict=True)])
    torch.testing.assert_close(kronecker_sums(constants, weights), expected, **tol)


def test_autocast_does_not_narrow_them():
    constants, weights = torch.randn(5, 3, 2, 2), torch.randn(5, 3, 4, 7)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(kronecker_sums(constants, weights), kronecker_sums(constants, weights).float())
        inside = kronecker_sums(constants, weights)
    torch.testing.assert_close(inside, kronecker_sums(constants, weights))


def test_a_network_of_many_layers_builds_few_products():
    network = PHCGNN(node_features=(5,), edge_features=(3,), n=2, width=8, layers=5, downstream=(6,))
    with torch.profiler.profile() as profile, batched_weights(network):
        pass
    products = sum(event.count for event in profile.key_averages() if event.key == "aten::bmm")
    assert products == 3  # 8 x 8, 8 -> 6, 6 -> 2
