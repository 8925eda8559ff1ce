from __future__ import annotations

import pytest
import torch
from torch import nn

from phcgnn.nn import MultiplicationRule, PHMLinear, rule_penalty, weight_penalty


@pytest.mark.parametrize("p", [1, 2, 3.5])
def test_weight_penalty_is_equation_nine(p, dtype, tol):
    model = nn.Sequential(PHMLinear(8, 12, n=4, dtype=dtype), nn.ReLU(), PHMLinear(12, 6, n=2, dtype=dtype))
    expected = 0.0
    for layer in (model[0], model[2]):
        total = 0.0
        rows, columns = layer.weight.shape[1:]
        for a in range(rows):
            for b in range(columns):
                total = total + sum(abs(w) ** p for w in layer.weight[:, a, b]) ** (1 / p)
        expected = expected + total / (rows * columns)
    torch.testing.assert_close(weight_penalty(model, p), expected, **tol)


def test_rule_penalty_is_equation_ten(dtype, tol):
    model = nn.Sequential(
        PHMLinear(6, 6, n=3, rule_start="uniform", dtype=dtype), PHMLinear(6, 6, n=2, terms=5, dtype=dtype)
    )
    expected = model[0].rule.constants.abs().sum() / 27 + model[1].rule.constants.abs().sum() / (5 * 4)
    torch.testing.assert_close(rule_penalty(model), expected, **tol)


def test_a_shared_rule_and_a_reused_layer_count_once():
    rule = MultiplicationRule("quaternion")
    layer = PHMLinear(8, 8, rule=rule)
    assert torch.equal(rule_penalty(nn.Sequential(layer, PHMLinear(8, 8, rule=rule))), rule_penalty(rule))
    assert torch.equal(weight_penalty(nn.Sequential(layer, layer)), weight_penalty(layer))


def test_gradients_reach_the_parameters_and_are_finite_at_zero():
    layer = PHMLinear(8, 8)
    (weight_penalty(layer) + rule_penalty(layer)).backward()
    assert layer.weight.grad.abs().sum() > 0
    assert layer.rule.constants.grad.abs().sum() > 0
    nn.init.zeros_(layer.weight)
    layer.zero_grad()
    weight_penalty(layer).backward()
    assert not layer.weight.grad.any()


def test_no_such_layers_no_penalty():
    assert weight_penalty(nn.Linear(2, 2)).item() == 0
    assert rule_penalty(nn.ReLU()).item() == 0


@pytest.mark.parametrize("p", [0, -1, float("nan")])
def test_bad_order(p):
    with pytest.raises(ValueError, match="`p` must be positive"):
        weight_penalty(PHMLinear(4, 4), p)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_small_weights_of_a_narrow_type_are_not_lost(dtype):
    layer = PHMLinear(8, 8, n=2, dtype=dtype)
    nn.init.constant_(layer.weight, 1e-3)
    penalty = weight_penalty(layer)
    torch.testing.assert_close(penalty.float(), torch.tensor(2**0.5 * 1e-3), rtol=1e-2, atol=0)
    penalty.backward()
    assert (layer.weight.grad > 0).all()
