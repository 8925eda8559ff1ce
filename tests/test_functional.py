from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from phcgnn.algebra import Algebra
from phcgnn.functional import (
    join_components,
    kronecker_sum,
    nearest_kronecker_sum,
    phm_linear,
    split_components,
)


def kron_sum(constants, weight):
    return sum(torch.kron(c, w) for c, w in zip(constants, weight, strict=True))


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest storage that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.untyped_storage().nbytes() // leaf.element_size())
        return out


@given(
    n=st.integers(1, 5),
    terms=st.integers(1, 6),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**31),
)
def test_equals_the_sum_of_kroneckers(n, terms, rows, columns, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    c = torch.randn(terms, n, n, generator=generator, dtype=dtype)
    w = torch.randn(terms, rows, columns, generator=generator, dtype=dtype)
    torch.testing.assert_close(kronecker_sum(c, w), kron_sum(c, w))


@given(n=st.integers(1, 4), a=st.integers(1, 3), b=st.integers(1, 3), c=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_products_in_an_associative_algebra_compose(n, a, b, c, seed):
    """U(V) for quaternion weights is again a quaternion weight: (C, W) -> (C, W*V) by the mixed product law."""
    generator = torch.Generator().manual_seed(seed)
    rule = Algebra.named("quaternion")
    u, v = (torch.randn(4, *s, generator=generator, dtype=torch.float64) for s in ((a, b), (b, c)))
    product = torch.einsum("iab,ikj,jbc->kac", u, rule.constants, v)
    dense = [kronecker_sum(rule.constants, w) for w in (u, v, product)]
    torch.testing.assert_close(dense[0] @ dense[1], dense[2])


def test_bit_exact_in_float64_for_a_named_algebra():
    """Every entry of U is one entry of W with a sign, so nothing may be rounded."""
    weight = torch.randn(4, 5, 3, dtype=torch.float64)
    constants = Algebra.named("quaternion").constants
    assert torch.equal(kronecker_sum(constants, weight), kron_sum(constants, weight))


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_nothing_of_size_terms_by_out_by_in_is_allocated(n):
    c = torch.randn(n, n, n, requires_grad=True)
    w = torch.randn(n, 128 // n, 64 // n, requires_grad=True)
    x = torch.randn(3, 64, requires_grad=True)
    with LargestTensor() as forward:
        y = phm_linear(x, c, w)
    with LargestTensor() as backward:
        y.sum().backward()
    assert forward.numel == 128 * 64
    assert backward.numel == 128 * 64


def test_the_textbook_way_would_be_caught():
    with LargestTensor() as largest:
        torch.stack([torch.kron(torch.randn(4, 4), torch.randn(32, 16)) for _ in range(4)]).sum(0)
    assert largest.numel == 4 * 128 * 64


def test_gradcheck():
    c = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 2, 1, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(phm_linear, (x, c, w, b))
    assert torch.autograd.gradgradcheck(phm_linear, (x, c, w, b))


def test_autocast_and_narrow_weights_sum_in_float32():
    c, w = torch.randn(4, 4, 4), torch.randn(4, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(kronecker_sum(c, w), kronecker_sum(c, w))
        dense = kronecker_sum(c, w)
    assert dense.dtype == torch.float32
    torch.testing.assert_close(dense, kron_sum(c, w))
    narrow = kronecker_sum(c, w.bfloat16())
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(narrow, kron_sum(c, w.bfloat16().float()).bfloat16())


def test_components_are_split_component_major():
    x = torch.arange(12).view(2, 6)
    assert split_components(x, 3)[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert torch.equal(join_components(split_components(x, 3)), x)
    with pytest.raises(ValueError, match="multiple of n=4, got 6"):
        split_components(x, 4)


# --------------------------------------------------------------------------------------------- nearest sum


@pytest.mark.parametrize("n, terms", [(1, 1), (2, 2), (3, 2), (4, 4), (2, 5)])
def test_a_sum_of_kroneckers_is_found_again(n, terms, dtype, tol):
    dense = kronecker_sum(torch.randn(terms, n, n, dtype=dtype), torch.randn(terms, 6, 5, dtype=dtype))
    constants, weight, error = nearest_kronecker_sum(dense, n, terms)
    assert (constants.shape, weight.shape) == ((terms, n, n), (terms, 6, 5))
    assert constants.dtype == weight.dtype == dtype
    torch.testing.assert_close(kronecker_sum(constants, weight), dense, **tol)
    assert error < 1e-5


def test_nearest_is_the_best_of_its_rank():
    dense = torch.randn(8, 12, dtype=torch.float64)
    constants, weight, error = nearest_kronecker_sum(dense, n=2, terms=2)
    residual = (kronecker_sum(constants, weight) - dense).norm() / dense.norm()
    assert error == pytest.approx(residual.item())
    values = torch.linalg.svdvals(dense.view(2, 4, 2, 6).transpose(1, 2).reshape(4, 24))
    assert error == pytest.approx((values[2:].norm() / values.norm()).item())
    assert constants.square().sum((1, 2)).tolist() == pytest.approx([2, 2])


def test_nearest_with_the_rule_kept_is_least_squares():
    dense, rule = torch.randn(8, 12, dtype=torch.float64), Algebra.named("quaternion").constants
    constants, weight, error = nearest_kronecker_sum(dense, 4, constants=rule)
    assert torch.equal(constants, rule)
    weight.requires_grad_()
    loss = (kronecker_sum(rule, weight) - dense).square().sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient.abs().max() < 1e-10
    assert 0 < error < 1


def test_nearest_to_zero_is_zero():
    constants, weight, error = nearest_kronecker_sum(torch.zeros(4, 4), 2)
    assert error == 0
    assert not kronecker_sum(constants, weight).any()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kronecker_sum(torch.zeros(2, 2, 3), torch.zeros(2, 1, 1)), r"`constants` has shape \(2, 2, 3\)"),
        (lambda: kronecker_sum(torch.zeros(2, 2, 2), torch.zeros(3, 1, 1)), r"expected \(2, out/n, in/n\)"),
        (lambda: kronecker_sum(torch.zeros(2, 2, 2), torch.zeros(2, 1)), r"`weight` has shape \(2, 1\)"),
        (lambda: nearest_kronecker_sum(torch.zeros(3), 1), r"expected \(out, in\)"),
        (lambda: nearest_kronecker_sum(torch.zeros(3, 4), 2), "multiple of n=2, got 3"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
