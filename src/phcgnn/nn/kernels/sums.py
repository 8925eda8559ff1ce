# mypy: allow-untyped-defs, allow-incomplete-defs
r"""Sum rows by lists, as :func:`phcgnn.nn.adjacency.sum_rows` does: one program a tile, no addition is atomic.

.. math:: \mathbf{y}_i = \sum_{j = p_i}^{p_{i + 1} - 1} \mathbf{x}_{c_j}
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from phcgnn.nn.kernels.language import jit, tl
from phcgnn.nn.kernels.tiles import choose, wide

__all__ = ["sum_by_lists", "sum_rows_kernel"]


@jit
def sum_rows_kernel(
    x,  # (columns, width)
    index,  # (elements,)
    ptr,  # (rows + 1,)
    out,  # (rows, width)
    rows,
    WIDTH: tl.constexpr,  # compiled for each, so that rows whose width allows it are read 16 bytes at a time
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Take a tile of lists, and one element of each after the other."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    begin = tl.load(ptr + row, mask=row < rows, other=0)
    end = tl.load(ptr + row + 1, mask=row < rows, other=0)
    total = tl.zeros((ROWS, CHANNELS), WIDE)
    longest, first = tl.max(end - begin, axis=0), 0
    while first < longest:
        for more in tl.static_range(UNROLL):
            at = begin + first + more
            column = tl.load(index + at, mask=at < end, other=0).to(tl.int64)
            there = (at < end)[:, None] & (channel < WIDTH)[None, :]
            total += tl.load(x + column[:, None] * WIDTH + channel[None, :], mask=there, other=0).to(WIDE)
        first += UNROLL
    cells = out + row.to(tl.int64)[:, None] * WIDTH + channel[None, :]
    tl.store(cells, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (channel < WIDTH)[None, :])


@torch.library.custom_op(
    "phcgnn::sum_by_lists",
    mutates_args=(),
    schema="(Tensor x, Tensor index, Tensor ptr, Tensor index_t, Tensor ptr_t) -> Tensor",
)
def sum_by_lists(x: Tensor, index: Tensor, ptr: Tensor, index_t: Tensor, ptr_t: Tensor) -> Tensor:
    """Sum rows by lists; the gradient does so by the transposed lists, and is in turn differentiable.

    Args:
        x: ``(columns, k)``, float32, float64, or narrower, which is added in float32.
        index: Rows of ``x``, list by list, int32 or int64.
        ptr: Where each list begins, one entry more than there are lists.
        index_t: The same of the transposed matrix.
        ptr_t: Likewise.
    """
    rows, width = ptr.shape[0] - 1, x.shape[1]
    if x.numel() == 0 or rows == 0:
        return x.new_zeros(rows, width)
    x, out = x.contiguous(), x.new_empty(rows, width)
    tile = choose(width, 512, index.shape[0] / rows)
    with torch.cuda.device_of(x):
        sum_rows_kernel[tile.grid(rows, width)](
            x,
            index.contiguous(),
            ptr.contiguous(),
            out,
            rows,
            WIDTH=width,
            WIDE=wide(x)[1],
            **tile.options(),
        )
    return out


@sum_by_lists.register_fake
def _(x: Tensor, index: Tensor, ptr: Tensor, index_t: Tensor, ptr_t: Tensor) -> Tensor:
    return x.new_empty(ptr.shape[0] - 1, x.shape[1])


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    index, ptr, index_t, ptr_t = ctx.saved_tensors
    return sum_by_lists(gradient, index_t, ptr_t, index, ptr), None, None, None, None


sum_by_lists.register_autograd(_differentiate, setup_context=_keep)
