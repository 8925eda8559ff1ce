from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from phcgnn.algebra import Algebra
from phcgnn.nn import MultiplicationRule
from phcgnn.testing import assert_resets_everything


@pytest.mark.parametrize("learn", [True, False])
def test_learned_or_frozen(learn):
    rule = MultiplicationRule("octonion", learn)
    assert isinstance(rule.constants, nn.Parameter) == learn
    assert rule.learn == learn
    assert torch.equal(rule.constants.detach().double(), Algebra.named("octonion").constants)
    assert rule.algebra == Algebra.named("octonion")


def test_learned_weights_load_into_a_frozen_rule():
    learned, frozen = MultiplicationRule(Algebra.uniform(3)), MultiplicationRule("cyclic:3", learn=False)
    frozen.load_state_dict(learned.state_dict())
    assert torch.equal(learned.constants, frozen.constants)


def test_a_named_start_is_drawn_anew_and_a_given_algebra_is_not():
    drawn = MultiplicationRule.from_start("uniform", 3)
    given = MultiplicationRule(Algebra.uniform(3))
    for rule, stays in ((drawn, False), (given, True)):
        before = rule.constants.detach().clone()
        rule.reset_parameters()
        assert torch.equal(rule.constants, before) == stays
        assert_resets_everything(rule)


def test_copies():
    rule = MultiplicationRule.from_start("uniform", 3, terms=2)
    for twin in (copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        assert torch.equal(twin.constants, rule.constants)
        twin.reset_parameters()
        assert twin.constants.shape == (2, 3, 3)


def test_float32_at_least():
    rule = MultiplicationRule(Algebra.uniform(3))
    before = rule.constants.detach().clone()
    model = nn.ModuleList([rule, nn.Linear(2, 2)]).bfloat16()
    assert model[1].weight.dtype == torch.bfloat16
    assert torch.equal(rule.constants, before)
    assert rule.double().bfloat16().constants.dtype == torch.float32
    assert rule.to("meta", torch.bfloat16).constants.dtype == torch.float32


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: MultiplicationRule("quaternoin"), "unknown algebra"),
        (
            lambda: MultiplicationRule(torch.zeros(1, 1, 1)),
            r"got Tensor.*Algebra\(constants\)",
        ),
        (lambda: MultiplicationRule.from_start("auto", 0), "`n` must be at least 1"),
        (lambda: MultiplicationRule.from_start("auto", 2, 0), "`terms` must be at least 1"),
        (lambda: MultiplicationRule.from_start(3, 2), "rule start is named by a string, got 3"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
