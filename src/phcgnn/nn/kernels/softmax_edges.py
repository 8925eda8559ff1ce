# mypy: allow-untyped-defs, allow-incomplete-defs
r"""What an edge passes back through the softmax: for the messages themselves, the table, and the temperature.

With :math:`a_e = e^{\beta m_e - \mu_v} / s_v` the weight of a message into node v, :math:`g_v` the gradient and
:math:`o_v` the result there,

.. math:: \frac{\partial}{\partial m_e} = a_e g_v \big(1 + \beta (m_e - o_v)\big), \qquad
          \frac{\partial}{\partial \beta} = \sum_{e, k} a_e g_v (m_e - o_v)\, m_e
"""

from __future__ import annotations

from phcgnn.nn.kernels.language import jit, tl
from phcgnn.nn.kernels.softmax_forward import add_table

__all__ = ["edges_kernel", "slope"]


@jit
def slope(message, scale, node, there, channel, gradient, out, highest, weight, WIDTH: tl.constexpr):
    """Return for messages (rows, channels) into the nodes (rows,) the share ``a g`` and the slope ``a g (m - o)``."""
    cells = node[:, None] * WIDTH + channel[None, :]
    mask = there[:, None] & (channel < WIDTH)[None, :]
    top = tl.load(highest + cells, mask=mask, other=float("inf"))  # what is outside has no weight
    part = tl.exp(message * scale - top) / tl.load(weight + cells, mask=mask, other=1)
    share = part * tl.load(gradient + cells, mask=mask, other=0).to(message.dtype)
    return share, share * (message - tl.load(out + cells, mask=mask, other=0).to(message.dtype))


@jit
def edges_kernel(
    h,
    source,
    table,
    codes,
    beta,
    target,  # (E,)
    gradient,  # (V, WIDTH), as the three after it
    out,
    highest,
    weight,
    to_message,  # (E, WIDTH), with WRITE
    to_table,  # (tiles, CATEGORIES, WIDTH), with CATEGORIES
    to_beta,  # (tiles, channel blocks)
    edges,
    LISTED: tl.constexpr,
    FEATURES: tl.constexpr,
    REAL: tl.constexpr,
    CATEGORIES: tl.constexpr,
    WRITE: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Take a tile of edges: write what their messages get back, or add it up for the table; and for the temperature."""
    tile = tl.program_id(0).to(tl.int64)
    edge = tile * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    there = edge < edges
    mask = there[:, None] & (channel < WIDTH)[None, :]
    node = tl.load(target + edge, mask=there, other=0).to(tl.int64)
    at = edge
    if LISTED:
        at = tl.load(source + edge, mask=there, other=0).to(tl.int64)
    scale = tl.load(beta).to(WIDE)
    message = tl.load(h + at[:, None] * WIDTH + channel[None, :], mask=mask, other=0).to(WIDE)
    message = add_table(message, table, codes, edge, there, channel, FEATURES, REAL, WIDTH)
    share, steep = slope(message, scale, node, there, channel, gradient, out, highest, weight, WIDTH)
    result = tl.where(mask, share + scale * steep, 0.0)
    if WRITE:
        cells = to_message + edge[:, None] * WIDTH + channel[None, :]
        tl.store(cells, result.to(to_message.dtype.element_ty), mask=mask)
    if CATEGORIES > 0:
        hot = tl.zeros((ROWS,), tl.int64)  # a bit a category
        if not REAL:
            for feature in tl.static_range(FEATURES):
                code = tl.load(codes + edge * FEATURES + feature, mask=there, other=0).to(tl.int64)
                hot = hot | (tl.full((ROWS,), 1, tl.int64) << code)
        for category in tl.static_range(CATEGORIES):
            if REAL:
                times = tl.load(codes + edge * FEATURES + category, mask=there, other=0).to(WIDE)
                parts = result * times[:, None]
            else:  # chosen, not multiplied by 0: a NaN stays with the categories that read it
                parts = tl.where((((hot >> category) & 1) != 0)[:, None], result, 0.0)
            cells = to_table + (tile * CATEGORIES + category) * WIDTH + channel
            tl.store(cells, tl.sum(parts, axis=0), mask=channel < WIDTH)
    together = tl.sum(tl.sum(tl.where(mask, steep * message, 0.0), axis=1), axis=0)
    tl.store(to_beta + tile * tl.num_programs(1) + tl.program_id(1), together)
