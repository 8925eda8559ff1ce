from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad

from phcgnn.nn import affine as module
from phcgnn.nn.affine import Affine, affine, fill_up, outer_sum, uses_onednn


def inputs(rows=64, i=24, o=16, dtype=torch.float32):
    shapes = ((rows, i), (o, i), (o,))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("rows", [1, 31, 32, 200, 4099])
def test_equals_linear_with_its_gradients(rows, relu, bias, dtype, tol):
    x, weight, b = inputs(rows, dtype=dtype)
    given = (x, weight, b) if bias else (x, weight)
    y, expected = affine(*given, relu=relu), F.linear(*given)
    expected = expected.relu() if relu else expected
    torch.testing.assert_close(y, expected, **tol)
    cotangent = torch.randn_like(y)
    for found, wanted in zip(
        torch.autograd.grad(y, given, cotangent), torch.autograd.grad(expected, given, cotangent), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=tol["rtol"], atol=10 * tol["atol"])


@pytest.mark.parametrize("rows", [2, 33, 4099])
@pytest.mark.parametrize("turned", [False, True])
def test_outer_sum_is_the_product(rows, turned, dtype, tol):
    left, right = torch.randn(rows, 70, dtype=dtype), torch.randn(rows, 90, dtype=dtype)
    if turned:
        left, right = left.t().contiguous().t(), right.t().contiguous().t()
    expected = (left.double().t() @ right.double()).to(dtype)
    torch.testing.assert_close(outer_sum(left, right), expected, rtol=tol["rtol"], atol=rows * tol["atol"])


def test_outer_sum_is_differentiable():
    left, right = (torch.randn(4099, 70, dtype=torch.float32, requires_grad=True) for _ in range(2))
    outer_sum(left, right).sum().backward()
    torch.testing.assert_close(left.grad, right.detach().sum(1, keepdim=True).expand(-1, 70), rtol=1e-4, atol=1e-3)


def test_few_numbers_of_rows_are_given_to_onednn():
    heads = {p * each for rows in range(2048, 4096) for p, each in [module._pieces(rows, 32)]}
    assert len(heads) == 32
    assert all(0 <= rows - p * each < rows / 32 for rows in range(32, 5000) for p, each in [module._pieces(rows, 32)])
    assert all(16 <= module._pieces(rows, 16)[0] < 32 for rows in range(32, 5000))
    for rows in range(1, 5000):
        filled = fill_up(rows)
        assert rows <= filled <= max(rows, rows * 33 / 32)
        pieces, each = module._pieces(filled, 32)
        assert rows < module.FEWEST_ROWS or pieces * each == filled


def test_gradients_of_gradients():
    x, weight, b = inputs()

    def second(function):
        (gx,) = torch.autograd.grad(function(x, weight, b).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gx.square().sum(), (x, weight))

    for found, wanted in zip(second(affine), second(F.linear), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3 * float(wanted.abs().max()))


def test_a_gradient_that_was_expanded():
    x, weight, b = inputs()
    affine(x, weight, b).sum().backward()
    torch.testing.assert_close(b.grad, torch.full((16,), 64.0))
    torch.testing.assert_close(x.grad, weight.sum(0).expand(64, -1).detach(), rtol=1e-4, atol=1e-5)


def test_without_onednn_it_is_linear_itself(monkeypatch):
    monkeypatch.setattr(module, "uses_onednn", lambda: False)
    x, weight, b = inputs()
    assert torch.equal(affine(x, weight, b), F.linear(x, weight, b))


def test_transforms_autocast_and_forward_mode_see_linear():
    x, weight, b = (t.detach() for t in inputs())
    with torch.autocast("cpu", torch.bfloat16):
        assert affine(x, weight, b).dtype == torch.bfloat16
    rows = torch.func.vmap(lambda w: affine(x, w))(weight[None])
    torch.testing.assert_close(rows[0], F.linear(x, weight), rtol=1e-4, atol=1e-4)
    gradient = torch.func.grad(lambda w: affine(x, w).sum())(weight)
    torch.testing.assert_close(gradient, x.sum(0).expand(16, -1), rtol=1e-4, atol=1e-4)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(affine(forward_ad.make_dual(x, torch.ones_like(x)), weight)).tangent
    torch.testing.assert_close(tangent, weight.sum(1).expand(64, -1), rtol=1e-4, atol=1e-4)


def test_the_choice_is_the_same_every_time():
    assert uses_onednn() is uses_onednn()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_module_shares_the_parameters_of_a_linear(relu, bias):
    linear = nn.Linear(8, 12, bias=bias).eval()
    layer = Affine.from_linear(linear, relu=relu)
    x = torch.randn(40, 8)
    expected = linear(x).relu() if relu else linear(x)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
    assert layer.weight is linear.weight
    assert layer.bias is linear.bias
    assert not layer.training
    assert ("relu=True" in repr(layer)) == relu


def test_a_nan_stays_one():
    x, weight, b = (t.detach() for t in inputs())
    weight[3] = float("nan")
    y = affine(x, weight, b, relu=True)
    assert y[:, 3].isnan().all()
    assert not y[:, :3].isnan().any()


def test_rows_that_overlap():
    base, other = torch.randn(87, requires_grad=True), torch.randn(39, requires_grad=True)
    x, weight = base.unfold(0, 24, 1), other.unfold(0, 24, 1)  # (64, 24), (16, 24)
    y, expected = affine(x, weight), F.linear(x.contiguous(), weight.contiguous())
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    cotangent = torch.randn_like(y)
    for found, wanted in zip(
        torch.autograd.grad(y, (base, other), cotangent),
        torch.autograd.grad(expected, (base, other), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # of the switch itself
def test_onednn_switched_off_is_off():
    x, weight, b = inputs()
    with torch.backends.mkldnn.flags(enabled=False):
        assert not module._applies(x, weight, b)
        assert torch.equal(affine(x, weight, b), F.linear(x, weight, b))
    assert module._applies(x, weight, b) == uses_onednn()


def test_gradients_for_several_cotangents_at_once():
    x, weight, b = inputs()
    y = affine(x, weight, b)
    cotangents = torch.randn(3, *y.shape)
    at_once = torch.autograd.grad(y, (x, weight, b), cotangents, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(y, (x, weight, b), cotangent, retain_graph=True) for cotangent in cotangents]
    for found, wanted in zip(at_once, zip(*singly, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-4, atol=1e-3)


BIASES = {
    "strided": lambda: torch.randn(32)[::2],
    "expanded": lambda: torch.randn(()).expand(16),
    "a number": lambda: torch.randn(()),
    "of one": lambda: torch.randn(1),
    "a row": lambda: torch.randn(1, 16),
}


@pytest.mark.parametrize("make", BIASES.values(), ids=BIASES)
def test_a_bias_in_another_layout(make):
    (x, weight, _), bias = (t.detach() for t in inputs()), make()
    torch.testing.assert_close(affine(x, weight, bias), F.linear(x, weight) + bias, rtol=1e-4, atol=1e-4)


def test_torch_words_the_error_for_a_wrong_width():
    with pytest.raises(RuntimeError, match="64x24 and 25x16"):
        affine(torch.randn(64, 24), torch.randn(16, 25))
