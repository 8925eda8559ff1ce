from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.utils.prune
from torch import nn

from phcgnn.algebra import Algebra
from phcgnn.nn import PHMLP, MultiplicationRule, PHMLinear, fold, to_phm
from phcgnn.nn.affine import Affine
from phcgnn.testing import assert_equals_kronecker_sum


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 12, bias=False), nn.Linear(12, 3)))


def test_replaces_and_reports():
    model, rows = network(), []
    before = copy.deepcopy(model.state_dict())
    converted = to_phm(model, n=4, report=rows.append)
    assert [type(m) for m in (converted[0], converted[2][0], converted[2][1])] == [PHMLinear, PHMLinear, nn.Linear]
    assert converted[2][0].bias is None
    assert [row.name for row in rows] == ["0", "2.0", "2.1"]
    assert [row.skipped for row in rows] == ["", "", "n=4 does not divide 12 -> 3"]
    assert rows[0].parameters_before == 8 * 16 + 16
    assert rows[0].parameters_after == 64 + 8 * 16 // 4 + 16
    assert rows[0].relative_error is None
    assert type(model[0]) is nn.Linear
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert converted(torch.randn(5, 8)).shape == (5, 3)
    assert torch.equal(converted[0].bias, model[0].bias)


def test_in_place_and_a_single_layer():
    model = network()
    assert to_phm(model, n=2, inplace=True) is model
    assert isinstance(model[0], PHMLinear)
    assert isinstance(to_phm(nn.Linear(4, 4), n=2), PHMLinear)
    assert fold(model, inplace=True) is model
    assert type(model[0]) is nn.Linear


def test_filter_and_options():
    rule = MultiplicationRule("complex")
    rows = []
    converted = to_phm(network(), n=2, filter=lambda name, layer: name != "0", report=rows.append, rule=rule)
    assert type(converted[0]) is nn.Linear
    assert rows[0].skipped == "filtered out"
    assert converted[2][0].rule is rule
    assert rows[1].parameters_after == 16 * 12 // 2  # the shared rule is nobody's
    frozen = to_phm(network(), n=2, learn_rule=False, terms=2)
    assert not frozen[0].rule.learn


@pytest.mark.parametrize("n, terms", [(1, 1), (2, 4), (2, None), (4, 16)])
def test_projection_is_exact_with_enough_terms_and_best_otherwise(n, terms, dtype, tol):
    model, rows = network().to(dtype), []
    model[2] = model[2][0]
    converted = to_phm(model, n=n, start="project", terms=terms, report=rows.append)
    x = torch.randn(5, 8, dtype=dtype)
    exact = (terms or n) >= n * n
    if exact:
        torch.testing.assert_close(converted(x), model(x), **tol)
    for row, old, new in zip(rows, (model[0], model[2]), (converted[0], converted[2]), strict=True):
        error = (new.dense_weight() - old.weight).norm() / old.weight.norm()
        assert row.relative_error == pytest.approx(error.item(), abs=1e-5)
        assert (row.relative_error < 1e-5) == exact


@pytest.mark.parametrize(
    "options", [{"rule_start": "quaternion"}, {"learn_rule": False}, {"rule": Algebra.named("quaternion")}]
)
def test_projection_onto_a_given_rule_keeps_it(options):
    linear, rows = nn.Linear(16, 16), []
    converted = to_phm(linear, n=4, start="project", report=rows.append, **options)
    assert torch.equal(converted.rule.constants.detach().double(), Algebra.named("quaternion").constants)
    blind = to_phm(linear, n=4, start="project")
    free = (blind.dense_weight() - linear.weight).norm() / linear.weight.norm()
    assert free < rows[0].relative_error < 1


def test_a_compressed_low_rank_model_keeps_its_predictions():
    teacher = PHMLP(16, 8, n=4).eval()
    student = to_phm(fold(teacher), n=4, start="project")
    x = torch.randn(9, 16)
    torch.testing.assert_close(student(x), teacher(x), atol=1e-4, rtol=1e-4)
    assert isinstance(student.linear1, PHMLinear)


def test_shared_modules_stay_shared_and_tied_weights_stay_tied():
    layer = nn.Linear(8, 8)
    converted = to_phm(nn.Sequential(layer, nn.ReLU(), layer), n=2)
    assert converted[0] is converted[2]
    folded = fold(converted)
    assert folded[0] is folded[2]

    embedding, head = nn.Embedding(8, 8), nn.Linear(8, 8)
    head.weight = embedding.weight
    rows = []
    tied = to_phm(nn.Sequential(embedding, head), n=2, report=rows.append)
    assert tied[1].weight is tied[0].weight
    assert rows[0].skipped == "its weight or bias is shared with another module"


def test_layers_with_hooks_and_subclasses_are_left():
    class Mine(nn.Linear):
        pass

    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda *args: None)
    rows = []
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    to_phm(nn.Sequential(Mine(4, 4), hooked, weighted), n=2, report=rows.append)
    assert [row.skipped for row in rows] == [
        "a subclass of nn.Linear: Mine",
        "it has hooks",
        "a subclass of nn.Linear: ParametrizedLinear",
    ]


def test_dtype_device_mode_and_frozen_parameters_are_kept():
    linear = nn.Linear(8, 8, dtype=torch.float64).eval()
    linear.weight.requires_grad_(False)
    phm = to_phm(linear, n=2)
    assert phm.weight.dtype == phm.rule.constants.dtype == torch.float64
    assert not phm.training
    assert not phm.weight.requires_grad
    assert not phm.rule.constants.requires_grad
    assert phm.bias.requires_grad
    assert phm.to_linear().bias.requires_grad
    assert not phm.to_linear().weight.requires_grad
    assert to_phm(nn.Linear(8, 8, device="meta"), n=2).weight.is_meta


@pytest.mark.parametrize("training", [True, False])
def test_a_transformer_works_after_conversion(training):
    """torch's fused encoder layer reads linear1.weight: it must not be taken with a PHM layer inside."""
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
    ).train(training)
    converted = to_phm(model, n=4, start="project", terms=16)
    assert isinstance(converted.layers[0].linear1, PHMLinear)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(converted(x), model(x), atol=1e-4, rtol=1e-4)


# --------------------------------------------------------------------------------------------------- fold


def test_fold_computes_the_same_and_drops_the_rules():
    rule = MultiplicationRule("quaternion")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rule = rule
            self.mlp = PHMLP(8, 12, rule=rule)
            self.last = PHMLinear(12, 4)

        def forward(self, x):
            return self.last(self.mlp(x))

    model, x = Model().eval(), torch.randn(5, 8)
    folded = fold(model)
    torch.testing.assert_close(folded(x), model(x))
    assert not [m for m in folded.modules() if isinstance(m, PHMLinear | MultiplicationRule)]
    assert model.rule is rule
    assert isinstance(model.last, PHMLinear)
    assert_equals_kronecker_sum(model.last)
    assert not folded.training


def test_fold_keeps_hooks_and_refuses_a_weight_that_a_hook_computes():
    layer, seen = PHMLinear(4, 4, n=2), []
    layer.register_forward_pre_hook(lambda module, args: (2 * args[0],))
    layer.register_forward_hook(lambda module, args, kwargs, y: seen.append(type(module)), with_kwargs=True)
    layer.register_full_backward_hook(lambda module, before, after: seen.append("backward"))
    x = torch.randn(3, 4, requires_grad=True)
    expected = layer(x)
    folded = fold(nn.Sequential(layer))
    torch.testing.assert_close(folded(x), expected)
    folded(x).sum().backward()
    assert seen == [PHMLinear, nn.Linear, nn.Linear, "backward"]
    nn.utils.prune.l1_unstructured(layer, "weight", 0.5)
    with pytest.raises(ValueError, match=r"layer '0' is computed by a hook.*prune\.remove"):
        fold(nn.Sequential(layer), inplace=True)
    nn.utils.prune.remove(layer, "weight")
    torch.testing.assert_close(fold(nn.Sequential(layer))(x), layer(x))
    normed = nn.utils.parametrizations.weight_norm(PHMLinear(4, 4, n=2))
    torch.testing.assert_close(fold(nn.Sequential(normed))(x), normed(x))


def test_lazy_layers_are_left_until_they_know_their_widths():
    model, rows = nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 4)), []
    half = to_phm(model, n=2, report=rows.append)
    assert [row.skipped for row in rows] == ["it is lazy: its widths are unknown before the first forward", ""]
    half(torch.ones(3, 6))
    assert isinstance(to_phm(half, n=2)[0], PHMLinear)


def test_fold_leaves_rules_that_other_modules_use():
    rule = MultiplicationRule("complex")

    class Multiply(nn.Module):
        def __init__(self):
            super().__init__()
            self.rule = rule

        def forward(self, x):
            return self.rule.algebra.product(x, x)

    model, x = nn.Sequential(PHMLinear(4, 2, n=2, rule=rule), Multiply()).eval(), torch.randn(3, 4)
    folded = fold(model)
    torch.testing.assert_close(folded(x), model(x))
    assert isinstance(folded[0], nn.Linear)
    assert isinstance(folded[1].rule, MultiplicationRule)


def test_fold_of_a_model_without_such_layers_is_a_copy():
    model = network()
    folded = fold(model)
    assert folded is not model
    torch.testing.assert_close(folded(torch.ones(1, 8)), model(torch.ones(1, 8)))


def not_a_number():
    model = nn.Sequential(nn.Linear(4, 4))
    nn.init.constant_(model[0].weight, torch.nan)
    return model


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: to_phm(network(), n=0), "`n` must be at least 1"),
        (lambda: to_phm(network(), n=2, start="projected"), "'fresh' or 'project', got 'projected'"),
        (lambda: to_phm(nn.Linear(4, 4, device="meta"), n=2, start="project"), "is on the meta device.*start='fresh'"),
        (lambda: to_phm(not_a_number(), n=2, start="project"), "weight of layer '0' is not finite"),
        (lambda: to_phm(network(), n=2, bias=False), "`bias` follows each replaced layer"),
        (lambda: to_phm(network(), n=2, weight_start="x"), "unknown weight start"),
        (lambda: to_phm(network(), n=2, rule=MultiplicationRule("quaternion")), "rule has n=4"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_layer_that_takes_the_positive_part_is_left():
    rows, model = [], nn.Sequential(Affine.from_linear(nn.Linear(8, 8), relu=True), Affine(8, 8))
    converted = to_phm(model, n=2, report=rows.append)
    assert [type(layer) for layer in converted] == [Affine, PHMLinear]
    assert [row.skipped for row in rows] == ["it takes the positive part of its output", ""]
