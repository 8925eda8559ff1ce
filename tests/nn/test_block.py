from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from phcgnn.nn import PHMLP, PHMLinear, fused
from phcgnn.nn.block import apply_blocks
from phcgnn.nn.dropout import ComponentDropout
from phcgnn.nn.norm import PHCNorm, build_norm


def make(widths, n=3, p=0.0, kind="unit", dtype=torch.float64, bias=True, relu=nn.ReLU):
    """Return blocks of the given widths, with nothing left at its start."""
    blocks = []
    for a, b in itertools.pairwise(widths):
        linear, norm = PHMLinear(a, b, n, bias=bias, dtype=dtype), PHCNorm(b, n, dtype=dtype)
        with torch.no_grad():
            norm.weight.uniform_(-1, 2)
            norm.bias.normal_()
            if bias:
                linear.bias.normal_()
        blocks.append((linear, norm, relu(), None if p is None else ComponentDropout(p, n, kind=kind)))
    return blocks


def one_by_one(x, blocks, skipped=None):
    """What it should be: torch's own operations."""
    for linear, norm, _, dropout in blocks:
        a = nn.functional.linear(x, linear.dense_weight(), linear.bias)
        x = nn.functional.batch_norm(
            a, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=True, momentum=0.1, eps=norm.eps
        ).relu()
        if dropout is not None and dropout.p:
            x = (x.unflatten(-1, (norm.n, -1)) * dropout.draw(x)).flatten(-2)
    return x if skipped is None else x + skipped


def parameters_of(blocks):
    return [p for linear, norm, *_ in blocks for p in (*linear.parameters(), *norm.parameters())]


def is_fused(y):
    return type(y.grad_fn).__name__ == "_FusedBackward"


@pytest.fixture(params=[16, 2**21], ids=["many pieces", "one piece"])
def pieces(request, monkeypatch):
    monkeypatch.setattr(fused, "PIECE", request.param * (12 if request.param == 16 else 1))


@pytest.mark.parametrize("kind", ["unit", "element"])
@pytest.mark.parametrize("p", [None, 0.0, 0.3])
@pytest.mark.parametrize("widths", [(6, 12), (6, 12, 9), (12, 3, 6, 12)])
@pytest.mark.parametrize("skips", [False, True])
def test_equals_the_parts_one_by_one_with_gradients_and_statistics(widths, p, kind, skips, dtype, tol, pieces):
    blocks = make(widths, p=p, kind=kind, dtype=dtype, bias=not skips)
    others = copy.deepcopy(blocks)
    x = (3 + torch.randn(53, widths[0], dtype=dtype)).requires_grad_()
    skipped = torch.randn(53, widths[-1], dtype=dtype, requires_grad=True) if skips else None
    torch.manual_seed(5)
    expected = one_by_one(x, others, skipped)
    torch.manual_seed(5)
    y = apply_blocks(x, blocks, skipped=skipped)
    assert is_fused(y)
    loose = {name: 50 * value for name, value in tol.items()}
    torch.testing.assert_close(y, expected, **loose)
    cotangent = torch.randn_like(y)
    given = [x] if skipped is None else [x, skipped]
    found = torch.autograd.grad(y, given + parameters_of(blocks), cotangent)
    wanted = torch.autograd.grad(expected, given + parameters_of(others), cotangent)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=loose["rtol"], atol=loose["atol"] * max(1, float(b.abs().max())))
    for block, other in zip(blocks, others, strict=True):
        torch.testing.assert_close(block[1].running_mean, other[1].running_mean, **tol)
        torch.testing.assert_close(block[1].running_var, other[1].running_var, **loose)
        assert int(block[1].num_batches_tracked) == 1


def test_a_mean_far_from_zero_costs_no_digits(pieces):
    blocks = make((6, 12), dtype=torch.float32)
    with torch.no_grad():
        blocks[0][0].bias.add_(300.0)
    exact = copy.deepcopy(blocks)
    for module in exact[0][:2]:
        module.double()
    x = torch.randn(3000, 6)
    y, expected = apply_blocks(x, blocks), one_by_one(x.double(), exact)
    torch.testing.assert_close(y.double(), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(blocks[0][1].running_var.double(), exact[0][1].running_var, rtol=1e-3, atol=1e-5)


def test_derivatives_and_second_derivatives(pieces):
    norms = [PHCNorm(4, n=2).double(), PHCNorm(6, n=2).double()]
    x, skipped = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, 6, dtype=torch.float64)
    weights = [torch.randn(4, 4), torch.randn(6, 4)]
    keep = ComponentDropout(0.3, 2).draw(torch.empty(9, 4, dtype=torch.float64))

    def function(x, skipped, first, second, bias, gamma, beta):
        for norm in norms:
            norm.weight, norm.bias = (nn.Parameter(p) for p in (gamma[: norm.num_features], beta[: norm.num_features]))
        settings = [(norms[0], keep), (norms[1], None)]
        return fused._Fused.apply(
            settings, x, skipped, first, None, gamma[:4], beta[:4], second, bias, gamma[4:], beta[4:]
        )

    inputs = [x, skipped, *(w.double() for w in weights)]
    inputs += [torch.randn(size, dtype=torch.float64) for size in (6, 10, 10)]
    inputs = tuple(tensor.requires_grad_() for tensor in inputs)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_frozen_parts_get_no_gradient():
    blocks = make((6, 12, 9))
    frozen = [blocks[0][0].weight, blocks[1][1].weight]
    for parameter in frozen:
        parameter.requires_grad_(False)
    apply_blocks(torch.randn(20, 6, dtype=torch.float64), blocks).sum().backward()
    assert all(p.grad is None for p in frozen)
    assert all(p.grad is not None for p in parameters_of(blocks) if p.requires_grad)


@pytest.mark.parametrize(
    "norm, activation",
    [("whitening", nn.ReLU()), ("component", nn.Tanh()), (None, nn.ReLU()), ("component", torch.relu)],
    ids=["whitening", "tanh", "no norm", "a function"],
)
def test_unusual_parts_go_one_after_the_other(norm, activation):
    linear, built = PHMLinear(6, 6, 3), build_norm(norm, 6, 3)
    x = torch.randn(9, 6)
    expected = activation(copy.deepcopy(built)(linear(x)))
    y = apply_blocks(x, [(linear, built, activation, None)])
    torch.testing.assert_close(y, expected)
    assert not is_fused(y)


def test_eval_mode_and_a_single_row_take_the_running_statistics():
    ((linear, norm, relu, dropout),) = make((6, 6), dtype=torch.float32)
    for x in (torch.randn(1, 6), torch.randn(5, 6)):
        norm.train(len(x) == 1)
        expected = (norm.weight * linear(x) / (1 + norm.eps) ** 0.5 + norm.bias).relu()
        torch.testing.assert_close(apply_blocks(x, [(linear, norm, relu, dropout)]), expected)
    assert int(norm.num_batches_tracked) == 0


def test_statistics_that_are_means_over_all_batches_or_not_kept():
    for options in ({"momentum": None}, {"track_running_stats": False}):
        ((linear, _, relu, dropout),) = make((6, 6))
        norm = PHCNorm(6, 3, dtype=torch.float64)
        for name, value in options.items():
            setattr(norm, name, value)
        other = copy.deepcopy(norm)
        for _ in range(3):
            x = torch.randn(9, 6, dtype=torch.float64)
            y = apply_blocks(x, [(linear, norm, relu, dropout)])
            assert is_fused(y)
            torch.testing.assert_close(y, nn.BatchNorm1d.forward(other, linear(x)).relu())
        torch.testing.assert_close(norm.state_dict(), other.state_dict())


@pytest.mark.parametrize("watched", range(4), ids=["linear", "norm", "activation", "dropout"])
def test_hooks_are_called(watched):
    blocks, seen = make((6, 12)), []
    blocks[0][watched].register_forward_hook(lambda *_: seen.append(1))
    apply_blocks(torch.randn(5, 6, dtype=torch.float64), blocks)
    assert seen == [1]


def test_a_wrong_width_is_refused_by_the_layer():
    with pytest.raises(ValueError, match="PHMLinear: the input"):
        apply_blocks(torch.randn(5, 7, dtype=torch.float64), make((6, 12)))


def test_a_nan_stays_one():
    blocks, x = make((6, 12)), torch.randn(20, 6, dtype=torch.float64)
    x[3] = float("nan")
    assert apply_blocks(x, blocks).isnan().all()


def test_drawn_units_are_kept_as_often_as_said():
    torch.manual_seed(0)
    drawn = ComponentDropout(0.3, 4).draw(torch.zeros(1000, 400))
    assert drawn.shape == (1000, 1, 100)
    assert drawn.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
    assert abs(float((drawn > 0).float().mean()) - 0.7) < 4 * (0.3 * 0.7 / 1e5) ** 0.5


def several_at_once(function, *inputs):
    """Return the gradients for three cotangents, at once and one by one."""
    y = function(*inputs)
    cotangents = torch.randn(3, *y.shape, dtype=y.dtype)
    at_once = torch.autograd.grad(y, inputs, cotangents, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(y, inputs, cotangent, retain_graph=True) for cotangent in cotangents]
    return at_once, [torch.stack(gradients) for gradients in zip(*singly, strict=True)]


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_gradients_for_several_cotangents_at_once(p):
    blocks = make((6, 12, 6), p=p)
    x = torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    given = [x, *parameters_of(blocks)]
    y = apply_blocks(x, blocks)
    cotangents = torch.randn(3, *y.shape, dtype=y.dtype)
    at_once = torch.autograd.grad(y, given, cotangents, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(y, given, cotangent, retain_graph=True) for cotangent in cotangents]
    for found, wanted in zip(at_once, zip(*singly, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-10, atol=1e-10)


def test_global_hooks_are_called():
    blocks, seen = make((6, 6), p=0.5), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        apply_blocks(torch.randn(5, 6, dtype=torch.float64), blocks)
    finally:
        handle.remove()
    assert seen == [PHMLinear, PHCNorm, nn.ReLU, ComponentDropout]


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_the_seed_draws_the_same_one_by_one(kind):
    blocks, x = make((6, 12, 6), p=0.4, kind=kind), torch.randn(50, 6, dtype=torch.float64)
    others = copy.deepcopy(blocks)
    torch.manual_seed(3)
    y = apply_blocks(x, blocks)
    torch.manual_seed(3)
    for linear, norm, relu, dropout in others:
        x = dropout(relu(norm(linear(x))))
    torch.testing.assert_close(y, x)
    assert torch.equal(y == 0, x == 0)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_layer_that_stands_twice_counts_once_in_second_derivatives(at_once):
    mlp = PHMLP(8, 8, 2, dtype=torch.float64)
    x = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    y, parameters = mlp(mlp(x)), [x, *mlp.parameters()]
    expected = torch.autograd.grad(y.square().sum(), parameters, retain_graph=True)
    if at_once:
        batched = torch.autograd.grad(y, parameters, 2 * y.detach()[None], is_grads_batched=True, retain_graph=True)
        found = [gradient[0] for gradient in batched]
    else:
        found = torch.autograd.grad(y.square().sum(), parameters, create_graph=True)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["linear1.bias", "linear1.rule.constants", "linear1.weight", "norm.weight", "norm.bias"]
)
def test_transforms_of_one_parameter_see_operations_that_they_know(name):
    mlp, x = PHMLP(8, 8, 2, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)
    parameter = dict(mlp.named_parameters())[name]
    expected = torch.autograd.grad(mlp(x).square().sum(), parameter)[0]

    def loss(value):
        buffers = {key: buffer.clone() for key, buffer in mlp.named_buffers()}
        return torch.func.functional_call(mlp, {**buffers, name: value}, (x,)).square().sum()

    torch.testing.assert_close(torch.func.grad(loss)(parameter.detach()), expected, rtol=1e-9, atol=1e-10)


def test_a_forward_of_its_own_is_called():
    mlp, seen = PHMLP(8, 8, 2), []
    usual = mlp.linear1.forward
    mlp.linear1.forward = lambda x: seen.append(1) or 2 * usual(x)
    mlp(torch.randn(5, 8))
    assert seen == [1]
