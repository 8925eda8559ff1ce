from __future__ import annotations

import pytest
import torch
from torch import nn

from phcgnn.nn import PHMLP, MultiplicationRule, PHCNorm, WhiteningNorm
from phcgnn.testing import assert_resets_everything, assert_seed_fixes_parameters


def test_is_two_layers_with_norm_and_activation_between():
    mlp, x = PHMLP(8, 12, n=4, hidden_features=16), torch.randn(6, 8)
    expected = mlp.linear2(torch.relu(nn.BatchNorm1d(16)(mlp.linear1(x))))
    torch.testing.assert_close(mlp(x), expected)


@pytest.mark.parametrize("norm, kind", [("component", PHCNorm), ("whitening", WhiteningNorm), (None, nn.Identity)])
@pytest.mark.parametrize("activation", ["relu", "gelu", None, nn.Tanh(), torch.sin])
def test_options(norm, kind, activation):
    mlp = PHMLP(8, 8, n=2, norm=norm, activation=activation, bias=False, learn_rule=False, weight_start="glorot")
    assert isinstance(mlp.norm, kind)
    assert mlp.linear1.bias is None
    assert not mlp.linear2.rule.learn
    assert mlp(torch.randn(5, 8)).shape == (5, 8)
    assert_resets_everything(mlp)


def test_an_instance_works_where_a_name_does():
    norm = nn.LayerNorm(8)
    assert PHMLP(8, 8, norm=norm).norm is norm


def test_rules_own_or_shared():
    own, rule = PHMLP(8, 8), MultiplicationRule("quaternion")
    assert own.linear1.rule is not own.linear2.rule
    shared = PHMLP(8, 8, rule=rule)
    assert shared.linear1.rule is shared.linear2.rule is rule
    assert_seed_fixes_parameters(lambda: PHMLP(8, 8, rule_start="uniform"))


def test_dtype_reaches_every_part(dtype):
    assert {p.dtype for p in PHMLP(8, 8, dtype=dtype).parameters()} == {dtype}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PHMLP(8, 8, hidden_features=6), "multiple of n=4, got 6"),
        (lambda: PHMLP(8, 8, norm="batch"), "unknown norm 'batch'; choose from component, whitening"),
        (lambda: PHMLP(8, 8, activation="rlu"), "unknown activation 'rlu'; .*Did you mean"),
        (lambda: PHMLP(8, 8, activation=3), "a name, a callable or None, got 3"),
        (lambda: PHMLP(8, 8, colour="red"), "colour"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
