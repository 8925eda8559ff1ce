"""The product under every layer: ``x W^T + b``, by the fastest library that this processor has for it.

On a CPU torch hands products in float32 to MKL, which leaves the AVX-512 units of processors that are not Intel's idle.
oneDNN, which torch brings along for convolutions, uses them: twice as fast on a Zen 5 core, in the same precision.

It generates code for each shape that it meets, which takes as long as the product of some thousand rows, and keeps that
of the last thousand shapes. No two batches of graphs have the same number of rows, so it is given the most rows that
have one of few numbers (:func:`_pieces`), and MKL the rest.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phcgnn.nn.eager import plain_on_cpu

__all__ = ["Affine", "affine", "fill_up", "outer_sum", "uses_onednn"]

FEWEST_ROWS = 32
"""Below this both libraries take as long as the call itself."""

FEWEST_TERMS = 2**23
"""Multiplications below which MKL is done with a sum of outer products before oneDNN has begun."""


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    r"""Return :math:`\mathbf{x}\mathbf{W}^\top + \mathbf{b}`, and its positive part where ``relu``.

    Equal to ``F.linear`` up to rounding, with all its derivatives.

    >>> affine(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -4.0]]), relu=True)
    tensor([[0.]])
    """
    if not _applies(x, weight, bias) or x.shape[1] != weight.shape[1]:
        y = F.linear(x, weight, bias)
    elif torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        y = _Affine.apply(x, weight, bias)
    else:
        y = _product(x, weight, bias)
        return y.relu_() if relu else y  # oneDNN's own ReLU makes 0 of a NaN, as if a broken network were not
    return y.relu() if relu else y


class Affine(nn.Linear):
    """An ``nn.Linear`` that multiplies by :func:`affine`, and may take the positive part of its output on the way.

    >>> layer = Affine.from_linear(nn.Linear(8, 4), relu=True)
    >>> bool((layer(torch.randn(3, 8)) >= 0).all())
    True
    """

    relu = False

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, relu: bool = False) -> Affine:
        """Return a layer with the very parameters of a plain one."""
        has_bias = linear.bias is not None
        layer = cls(linear.in_features, linear.out_features, bias=has_bias, device="meta")
        layer.weight, layer.bias = linear.weight, linear.bias
        layer.relu = relu
        return layer.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:  # (*, F_in) -> (*, F_out)
        """Apply the layer."""
        return affine(input, self.weight, self.bias, relu=self.relu)

    def extra_repr(self) -> str:
        """Describe the layer for ``repr``."""
        return super().extra_repr() + (", relu=True" if self.relu else "")


def outer_sum(left: Tensor, right: Tensor) -> Tensor:  # (rows, a), (rows, b) -> (a, b)
    r"""Return :math:`\sum_r \mathbf{l}_r \mathbf{r}_r^\top`, as the gradient of a weight is.

    >>> outer_sum(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 0.0], [4.0, 1.0]]))
    tensor([[11.,  2.]])
    """
    terms = left.numel() * right.shape[1]
    if torch.is_grad_enabled() or terms < FEWEST_TERMS or not _applies(left, right, None):
        return left.t() @ right
    # As the gradient of a convolution by one pixel, for which oneDNN transposes as it goes
    pieces, each = _pieces(len(left), 16)  # with fewer images torch may not ask oneDNN
    head, width, height = pieces * each, left.shape[1], right.shape[1]
    gradient, x = (t[:head].contiguous().view(pieces, 1, each, -1).permute(0, 3, 1, 2) for t in (left, right))
    weight = left.new_empty(width, height, 1, 1)
    found = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]
    )[1].view(width, height)
    return found if head == len(left) else found.addmm_(left[head:].t(), right[head:])


@functools.cache
def uses_onednn() -> bool:
    """Whether products on this machine's CPU go to oneDNN: the same in every process, for it decides on roundings."""
    available = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return available and wide and "AuthenticAMD" in _processor() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    return info.read_text(encoding="utf-8")[:4096] if info.is_file() else platform.processor()


def _applies(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if torch.compiler.is_compiling() or x.dtype != torch.float32 or weight.dtype != torch.float32 or not uses_onednn():
        return False
    if not torch.backends.mkldnn.enabled:
        return False
    if x.dim() != 2 or weight.dim() != 2 or x.shape[0] < FEWEST_ROWS or min(weight.shape) < 8:
        return False
    if bias is None:
        return plain_on_cpu(x, weight)
    # oneDNN reads a bias as it lies in memory: what is not a row of numbers, torch broadcasts or refuses
    fits = bias.dtype == x.dtype and bias.shape == weight.shape[:1] and bias.is_contiguous()
    return fits and plain_on_cpu(x, weight, bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not (weight.is_contiguous() or weight.t().is_contiguous()):
        weight = weight.contiguous()  # oneDNN knows no rows that overlap, as those of ``unfold`` do
    pieces, each = _pieces(len(x), 32)
    head = pieces * each
    y = torch.ops.mkldnn._linear_pointwise(x[:head], weight, bias, "none", [], "")
    return y if head == len(x) else torch.cat([y, F.linear(x[head:], weight, bias)])


def fill_up(rows: int) -> int:
    """Return the least number from ``rows`` on that oneDNN is given as a whole; 1.5% more on average.

    >>> fill_up(1000), fill_up(1008), fill_up(20)
    (1008, 1008, 20)
    """
    _, each = _pieces(max(rows, FEWEST_ROWS), 32)
    return rows if rows < FEWEST_ROWS else -(-rows // each) * each


def _pieces(rows: int, least: int) -> tuple[int, int]:
    """Return how many pieces, each a power of two long, hold nearly all rows: ``least``, or up to twice as many.

    So there are ``least`` such numbers of rows from one power of two to the next.
    """
    each = 1 << max(rows.bit_length() - least.bit_length(), 0)
    return rows // each, each


class _Affine(torch.autograd.Function):
    # forward takes the context: with setup_context, torch would read the signature again at every call

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), gradient = ctx.saved_tensors, gradients[0].contiguous()
        wanted = ctx.needs_input_grad
        return (
            affine(gradient, weight.t()) if wanted[0] else None,
            outer_sum(gradient, x) if wanted[1] else None,
            gradient.sum(0) if wanted[2] else None,
        )
