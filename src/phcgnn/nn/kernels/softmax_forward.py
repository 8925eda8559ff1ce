# mypy: allow-untyped-defs, allow-incomplete-defs
r"""The softmax aggregation in one pass over the edges into each node.

With :math:`\mu` the largest logit so far, :math:`s` the sum of weights and :math:`t` that of weighted messages, a
message :math:`m` with the logit :math:`z = \beta m` leads to

.. math:: \mu' = \max(\mu, z), \quad s' = s\, e^{\mu - \mu'} + e^{z - \mu'}, \quad
          t' = t\, e^{\mu - \mu'} + m\, e^{z - \mu'}

and :math:`t / s` is the result, so that neither messages nor weights are ever written down.
"""

from __future__ import annotations

from phcgnn.nn.kernels.language import jit, tl

__all__ = ["add_table", "softmax_kernel"]


@jit
def add_table(
    message, table, codes, edge, there, channel, FEATURES: tl.constexpr, REAL: tl.constexpr, WIDTH: tl.constexpr
):
    """Add to a tile of messages (rows, channels) what their edges carry.

    That is the rows of a table that the codes of an edge name, or with REAL all rows, each times a number of the edge.
    """
    for feature in tl.static_range(FEATURES):
        code = tl.load(codes + edge * FEATURES + feature, mask=there, other=0)
        if REAL:
            vector = tl.load(table + feature * WIDTH + channel, mask=channel < WIDTH, other=0).to(message.dtype)
            message += code.to(message.dtype)[:, None] * vector[None, :]
        else:
            cells = table + code.to(tl.int64)[:, None] * WIDTH + channel[None, :]
            mask = there[:, None] & (channel < WIDTH)[None, :]
            message += tl.load(cells, mask=mask, other=0).to(message.dtype)
    return message


@jit
def softmax_kernel(
    h,  # (V, WIDTH), or with LISTED=False the messages (E, WIDTH)
    source,  # (E,)
    table,  # (categories, WIDTH)
    codes,  # (E, FEATURES), with REAL numbers
    beta,  # ()
    ptr,  # (rows + 1,)
    out,  # (rows, WIDTH)
    highest,  # (rows, WIDTH)
    weight,  # (rows, WIDTH)
    rows,
    LISTED: tl.constexpr,
    FEATURES: tl.constexpr,
    REAL: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Take a tile of nodes, and one edge into each after the other."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    begin = tl.load(ptr + row, mask=row < rows, other=0).to(tl.int64)
    end = tl.load(ptr + row + 1, mask=row < rows, other=0).to(tl.int64)
    scale = tl.load(beta).to(WIDE)
    top = tl.full((ROWS, CHANNELS), float("-inf"), WIDE)
    weights = tl.zeros((ROWS, CHANNELS), WIDE)
    total = tl.zeros((ROWS, CHANNELS), WIDE)
    longest, first = tl.max(end - begin, axis=0), 0
    while first < longest:
        for more in tl.static_range(UNROLL):
            edge = begin + first + more
            there = edge < end
            at = edge
            if LISTED:
                at = tl.load(source + edge, mask=there, other=0).to(tl.int64)
            mask = there[:, None] & (channel < WIDTH)[None, :]
            message = tl.load(h + at[:, None] * WIDTH + channel[None, :], mask=mask, other=0).to(WIDE)
            message = add_table(message, table, codes, edge, there, channel, FEATURES, REAL, WIDTH)
            logit = message * scale
            above = tl.maximum(top, logit)
            shift = tl.where(above == float("-inf"), 0.0, above)
            shrink = tl.exp(top - shift)
            own = tl.exp(logit - shift)
            weights = tl.where(mask, weights * shrink + own, weights)
            total = tl.where(mask, total * shrink + own * message, total)
            top = tl.where(mask, above, top)
        first += UNROLL
    # without edges, what is largest must not be infinite, for it is subtracted; where all logits are -inf, 0 / 0 is NaN
    empty = (begin >= end)[:, None] | (channel >= WIDTH)[None, :]
    result = tl.where(empty, 0.0, total / tl.where(empty, 1.0, weights))
    cells = row.to(tl.int64)[:, None] * WIDTH + channel[None, :]
    inside = (row < rows)[:, None] & (channel < WIDTH)[None, :]
    tl.store(out + cells, result.to(out.dtype.element_ty), mask=inside)
    tl.store(highest + cells, tl.where(empty, 0.0, top), mask=inside)
    tl.store(weight + cells, tl.where(empty, 1.0, weights), mask=inside)
