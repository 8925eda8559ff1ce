from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from phcgnn.nn import norm as norm_module
from phcgnn.nn.block import activate
from phcgnn.nn.dropout import ComponentDropout
from phcgnn.nn.norm import PHCNorm, WhiteningNorm, build_norm


def one_by_one(x, norm, dropout, seed):
    y = nn.functional.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=True, momentum=0.1, eps=norm.eps
    ).relu()
    torch.manual_seed(seed)
    return y if dropout is None or dropout.p == 0 else (y.unflatten(-1, (norm.n, -1)) * dropout.draw(y)).flatten(-2)


@pytest.mark.parametrize("kind", ["unit", "element"])
@pytest.mark.parametrize("p", [None, 0.0, 0.3])
def test_equals_norm_relu_dropout_with_gradients_and_statistics(p, kind, dtype, tol):
    norm = PHCNorm(12, n=3).to(dtype)
    with torch.no_grad():
        norm.weight.uniform_(-1, 2)
        norm.bias.normal_()
    other = copy.deepcopy(norm)
    dropout = None if p is None else ComponentDropout(p, 3, kind=kind)
    x = (3 + torch.randn(50, 12, dtype=dtype)).requires_grad_()
    expected = one_by_one(x, other, dropout, 5)
    torch.manual_seed(5)
    y = activate(x, norm, nn.ReLU(), dropout)
    torch.testing.assert_close(y, expected, **tol)
    cotangent = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, norm.weight, norm.bias), cotangent)
    wanted = torch.autograd.grad(expected, (x, other.weight, other.bias), cotangent)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=10 * tol["rtol"], atol=10 * tol["atol"])
    torch.testing.assert_close(norm.running_mean, other.running_mean, **tol)
    torch.testing.assert_close(norm.running_var, other.running_var, **tol)
    assert int(norm.num_batches_tracked) == 1


def test_second_derivatives():
    norm = PHCNorm(4, n=2).double()
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)

    def function(x, weight, bias):
        return norm_module._NormActivate.apply(x, weight, bias, None, None, 0.0, 1e-5, True, None)[0]

    inputs = (x, norm.weight.detach().requires_grad_(), norm.bias.detach().requires_grad_())
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize(
    "norm, activation",
    [("whitening", nn.ReLU()), ("component", nn.Tanh()), (None, nn.ReLU()), ("component", torch.relu)],
    ids=["whitening", "tanh", "no norm", "a function"],
)
def test_unusual_parts_go_one_after_the_other(norm, activation):
    built = build_norm(norm, 6, 3)
    x = torch.randn(9, 6)
    expected = activation(copy.deepcopy(built)(x))
    torch.testing.assert_close(activate(x, built, activation), expected)
    assert norm != "whitening" or isinstance(built, WhiteningNorm)


def test_eval_mode_and_a_single_row_take_the_running_statistics():
    norm = PHCNorm(6, n=3)
    for x in (torch.randn(1, 6), torch.randn(5, 6)):
        norm.train(len(x) == 1)
        expected = (x / (1 + norm.eps) ** 0.5).relu()
        torch.testing.assert_close(activate(x, norm, nn.ReLU(), ComponentDropout(0.0, 3)), expected)


def test_hooks_are_called():
    norm, seen = PHCNorm(6, n=3), []
    norm.register_forward_hook(lambda *_: seen.append("norm"))
    activate(torch.randn(5, 6), norm, nn.ReLU())
    assert seen == ["norm"]


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
    norm, dropout = PHCNorm(6, n=3).double(), ComponentDropout(p, 3)
    x = torch.randn(40, 6, dtype=torch.float64, requires_grad=True)

    def function(x, weight, bias):
        return activate(x, norm, nn.ReLU(), dropout)

    at_once, singly = several_at_once(function, x, norm.weight, norm.bias)
    for found, wanted in zip(at_once, singly, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_global_hooks_are_called():
    norm, seen = PHCNorm(6, n=3), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        activate(torch.randn(5, 6), norm, nn.ReLU(), ComponentDropout(0.5, 3))
    finally:
        handle.remove()
    assert seen == [PHCNorm, nn.ReLU, ComponentDropout]


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_the_seed_draws_the_same_one_by_one(kind):
    norm, dropout = PHCNorm(12, n=3), ComponentDropout(0.4, 3, kind=kind)
    other, x = copy.deepcopy(norm), torch.randn(50, 12)
    torch.manual_seed(3)
    y = activate(x, norm, nn.ReLU(), dropout)
    torch.manual_seed(3)
    expected = dropout(other(x).relu())
    torch.testing.assert_close(y, expected)
    assert torch.equal(y == 0, expected == 0)
