# mypy: allow-untyped-defs, allow-incomplete-defs
r"""What a node gets back through the softmax, over the edges that leave it; the messages are made anew.

.. math:: \frac{\partial}{\partial \mathbf{h}_u} = \sum_{e: u \to v} a_e g_v \big(1 + \beta (m_e - o_v)\big)
"""

from __future__ import annotations

from phcgnn.nn.kernels.language import jit, tl
from phcgnn.nn.kernels.softmax_edges import slope
from phcgnn.nn.kernels.softmax_forward import add_table

__all__ = ["sources_kernel"]


@jit
def sources_kernel(
    h,  # (rows, WIDTH)
    leaving,  # (E,), places of the edges in the order of their sources
    leaving_ptr,  # (rows + 1,)
    table,
    codes,
    beta,
    target,  # (E,)
    gradient,  # (V, WIDTH), as the three after it
    out,
    highest,
    weight,
    to_h,  # (rows, WIDTH)
    rows,
    FEATURES: tl.constexpr,
    REAL: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Take a tile of nodes, and one edge from each after the other."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    begin = tl.load(leaving_ptr + row, mask=row < rows, other=0).to(tl.int64)
    end = tl.load(leaving_ptr + row + 1, mask=row < rows, other=0).to(tl.int64)
    scale = tl.load(beta).to(WIDE)
    cells = row.to(tl.int64)[:, None] * WIDTH + channel[None, :]
    inside = (row < rows)[:, None] & (channel < WIDTH)[None, :]
    sent = tl.load(h + cells, mask=inside, other=0).to(WIDE)
    total = tl.zeros((ROWS, CHANNELS), WIDE)
    longest, first = tl.max(end - begin, axis=0), 0
    while first < longest:
        for more in tl.static_range(UNROLL):
            place = begin + first + more
            there = place < end
            edge = tl.load(leaving + place, mask=there, other=0).to(tl.int64)
            node = tl.load(target + edge, mask=there, other=0).to(tl.int64)
            message = add_table(sent, table, codes, edge, there, channel, FEATURES, REAL, WIDTH)
            share, steep = slope(message, scale, node, there, channel, gradient, out, highest, weight, WIDTH)
            total += tl.where(there[:, None], share + scale * steep, 0.0)
        first += UNROLL
    tl.store(to_h + cells, total.to(to_h.dtype.element_ty), mask=inside)
