"""The softmax aggregation as operations of torch: registered, with shapes for tracing, differentiable twice."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from phcgnn.nn.kernels.lists import EdgeLists
from phcgnn.nn.kernels.softmax_edges import edges_kernel
from phcgnn.nn.kernels.softmax_forward import softmax_kernel
from phcgnn.nn.kernels.softmax_sources import sources_kernel
from phcgnn.nn.kernels.tiles import choose, wide

__all__ = ["MOST_ROWS", "softmax_by_lists", "softmax_of_messages", "softmax_of_neighbours"]

MOST_ROWS = 16
"""Of a table that is read by the kernels: backward takes a sum over the edges for each."""

LISTS = "Tensor ptr, Tensor target, Tensor? source, Tensor? leaving, Tensor? leaving_ptr"


def softmax_of_messages(x: Tensor, beta: Tensor, lists: EdgeLists) -> Tensor:
    """Do what :class:`~phcgnn.nn.aggregation.SoftmaxAggregation` does.

    Args:
        x: Messages in the order of the lists, ``(E, k)``.
        beta: The temperature.
        lists: Which of them belong together.
    """
    return cast(Tensor, softmax_by_lists(x, None, beta, None, lists.ptr, lists.target, None, None, None)[0]).to(x.dtype)


def softmax_of_neighbours(
    h: Tensor, beta: Tensor, lists: EdgeLists, table: Tensor | None = None, codes: Tensor | None = None
) -> Tensor:
    r"""Aggregate :math:`\mathbf{m}_e = \mathbf{h}_u + \sum_f \mathbf{T}_{c_{ef}}` over the edges into each node.

    Where ``codes`` are no integers they are numbers :math:`x_{ef}`, and what is added to :math:`\mathbf{h}_u` is
    :math:`\sum_f x_{ef} \mathbf{T}_f`; no gradient is taken for them.

    Neither forward nor backward holds a tensor of size edges x width.

    Args:
        h: Nodes, ``(V, k)``.
        beta: The temperature.
        lists: The edges.
        table: What categories add, ``(categories, k)``, at most ``MOST_ROWS``.
        codes: Rows of the table, no row twice for an edge, ``(E, F)``; or numbers, one for each row of the table.
    """
    ends = lists.ptr, lists.target, lists.source, lists.leaving, lists.leaving_ptr
    dtype = h.dtype if table is None else torch.promote_types(h.dtype, table.dtype)
    return cast(Tensor, softmax_by_lists(h, table, beta, codes, *ends)[0]).to(dtype)


@torch.library.custom_op(
    "phcgnn::softmax_by_lists",
    mutates_args=(),
    schema=f"(Tensor h, Tensor? table, Tensor beta, Tensor? codes, {LISTS}) -> (Tensor, Tensor, Tensor)",
)
def softmax_by_lists(
    h: Tensor,
    table: Tensor | None,
    beta: Tensor,
    codes: Tensor | None,
    ptr: Tensor,
    target: Tensor,
    source: Tensor | None,
    leaving: Tensor | None,
    leaving_ptr: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result, the largest logits and the sums of weights; without ``source``, ``h`` holds messages."""
    found = _results(h, table, ptr)
    rows, width = found[0].shape
    if found[0].numel() == 0 or target.numel() == 0:
        return found[0].zero_(), found[1].zero_(), found[2].fill_(1)
    h, table, codes = _contiguous(h, table, codes)
    target, source = target.contiguous(), None if source is None else source.contiguous()
    tile = choose(width, 512, target.shape[0] / rows)
    with torch.cuda.device_of(h):
        softmax_kernel[tile.grid(rows, width)](
            h,
            _or(source, target),
            _or(table, h),
            _or(codes, target),
            beta,
            ptr.contiguous(),
            *found,
            rows,
            LISTED=source is not None,
            **_of_edges(table, codes),
            WIDTH=width,
            WIDE=wide(found[0])[1],
            **tile.options(),
        )
    return found


@torch.library.custom_op(
    "phcgnn::softmax_by_lists_backward",
    mutates_args=(),
    schema=(
        "(Tensor gradient, Tensor out, Tensor highest, Tensor weight, "
        f"Tensor h, Tensor? table, Tensor beta, Tensor? codes, {LISTS}) -> (Tensor, Tensor, Tensor)"
    ),
)
def _backward(
    gradient: Tensor,
    out: Tensor,
    highest: Tensor,
    weight: Tensor,
    h: Tensor,
    table: Tensor | None,
    beta: Tensor,
    codes: Tensor | None,
    ptr: Tensor,
    target: Tensor,
    source: Tensor | None,
    leaving: Tensor | None,
    leaving_ptr: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of ``h``, ``table`` (empty without) and ``beta``; nothing is added atomically."""
    to_h, to_table = torch.empty_like(h, memory_format=torch.contiguous_format), _or(table, h.new_empty(0))
    rows, width, edges = h.shape[0], h.shape[1], target.shape[0]
    if edges == 0 or width == 0:
        return to_h.zero_(), torch.zeros_like(to_table), torch.zeros_like(beta)
    h, table, codes = _contiguous(h, table, codes)
    gradient, target = gradient.contiguous(), target.contiguous()
    source, leaving, leaving_ptr = (None if t is None else t.contiguous() for t in (source, leaving, leaving_ptr))
    of_nodes = target, gradient, out, highest, weight
    dtype, wide_ = wide(out)
    categories = 0 if table is None or codes is None else table.shape[0]
    tile = choose(width, 1024, most=32)  # of 32 edges or more, so that partial sums are few
    grid = tile.grid(edges, width)
    of_table = h.new_empty(grid[0], categories, width, dtype=dtype)
    of_beta = h.new_empty(grid, dtype=dtype)
    shared = {**_of_edges(table, codes), "WIDTH": width, "WIDE": wide_}
    with torch.cuda.device_of(h):
        edges_kernel[grid](
            h,
            _or(source, target),
            _or(table, h),
            _or(codes, target),
            beta,
            *of_nodes,
            to_h,
            of_table,
            of_beta,
            edges,
            LISTED=source is not None,
            CATEGORIES=categories,
            WRITE=source is None,
            **shared,
            **tile.options(),
        )
        if source is not None:
            tile = choose(width, 512, edges / rows)
            ends = _or(leaving, target), _or(leaving_ptr, ptr)
            where = _or(table, h), _or(codes, target)
            sources_kernel[tile.grid(rows, width)](
                h, *ends, *where, beta, *of_nodes, to_h, rows, **shared, **tile.options()
            )
    summed = of_table.sum(0).to(to_table.dtype) if categories else torch.zeros_like(to_table)
    return to_h, summed, of_beta.sum().to(beta.dtype)


def _results(h: Tensor, table: Tensor | None, ptr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    shape, dtype = (ptr.shape[0] - 1, h.shape[1]), wide(h, _or(table, h))[0]
    return h.new_empty(shape, dtype=dtype), h.new_empty(shape, dtype=dtype), h.new_empty(shape, dtype=dtype)


@softmax_by_lists.register_fake
def _(h: Tensor, table: Tensor | None, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _results(h, table, others[2])


@_backward.register_fake
def _(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    h, table, beta = given[4:7]
    to_h = torch.empty_like(h, memory_format=torch.contiguous_format)
    return (
        to_h,
        h.new_empty(0) if table is None else torch.empty_like(table, memory_format=torch.contiguous_format),
        torch.empty_like(beta),
    )


def _keep(ctx: Any, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output, *inputs)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    gradient, saved = gradients[0], ctx.saved_tensors
    if gradient is None:
        return (None,) * 9
    twice = torch.is_grad_enabled() or torch._C._functorch.is_functorch_wrapped_tensor(gradient)
    to_h, to_table, to_beta = _by_torch(gradient, *saved[3:]) if twice else _backward(gradient, *saved)
    return to_h, None if saved[4] is None else to_table, to_beta, *(None,) * 6


softmax_by_lists.register_autograd(_differentiate, setup_context=_keep)


def _by_torch(
    gradient: Tensor,
    h: Tensor,
    table: Tensor | None,
    beta: Tensor,
    codes: Tensor | None,
    ptr: Tensor,
    target: Tensor,
    source: Tensor | None,
    *_: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the same gradients by operations that know their derivatives, where they are wanted twice."""
    dtype = wide(h, _or(table, h))[0]
    x = (h if source is None else h.index_select(0, source)).to(dtype)
    hot = None
    if table is not None and codes is not None:
        hot = codes.to(dtype)
        if not codes.is_floating_point():
            hot = x.new_zeros(codes.shape[0], table.shape[0]).scatter(1, codes.long(), 1.0)
        x = x + hot @ table.to(dtype)
    logits = x * beta
    zeros = x.new_zeros(ptr.shape[0] - 1, x.shape[1])
    highest = zeros.scatter_reduce(0, target[:, None].expand_as(x), logits.detach(), "amax", include_self=False)
    weights = (logits - highest.index_select(0, target)).exp()
    total = zeros.index_add(0, target, weights).clamp_min(1)
    found = zeros.index_add(0, target, weights * x) / total
    share = weights * (gradient / total).index_select(0, target)
    steep = share * (x - found.index_select(0, target))
    to_x = share + beta * steep
    to_h = to_x if source is None else x.new_zeros(h.shape).index_add(0, source, to_x)
    to_table = None if table is None or hot is None else (hot.T @ to_x).to(table.dtype)
    return to_h.to(h.dtype), to_table, (steep * x).sum().to(beta.dtype)


def _of_edges(table: Tensor | None, codes: Tensor | None) -> dict[str, Any]:
    if table is None or codes is None:
        return {"FEATURES": 0, "REAL": False}
    return {"FEATURES": codes.shape[1], "REAL": codes.is_floating_point()}


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Return a tensor, or whatever stands in its place where a kernel does not read it."""
    return other if tensor is None else tensor


def _contiguous(h: Tensor, *others: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    table, codes = (None if tensor is None else tensor.contiguous() for tensor in others)
    return h.contiguous(), table, codes
