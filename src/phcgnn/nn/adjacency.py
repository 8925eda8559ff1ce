r"""The edges of a batch, sorted once, so that a sum over neighbours never holds a tensor of size edges x width.

Summing what the neighbours carry is the product with a 0/1 matrix. Its rows are bags of row numbers, which
``embedding_bag`` sums without gathering them first; backward is the same with the transposed matrix, so that every
layer of a network shares the two sortings and no step needs an atomic addition.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from phcgnn.errors import ShapeError
from phcgnn.nn.kernels.switch import takes
from phcgnn.nn.precision import NARROW

__all__ = ["Adjacency", "add_rows", "require_edges", "require_nodes", "sum_rows"]


class Adjacency(NamedTuple):
    """Who sends to whom, by target and by source.

    Shapes:
        - **source, target:** ``(E,)``, sources of the edges sorted by target, and targets of those sorted by source
        - **source_ptr, target_ptr:** ``(V + 1,)``, where the edges of each node begin in either
        - **degree:** ``(V,)``, number of incoming edges
        - **order, optional:** ``(E,)``, for the edges sorted by source, where they stand among those sorted by target

    >>> path = Adjacency.from_edges(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
    >>> path.sum(torch.tensor([[1.0], [10.0], [100.0]])).flatten()
    tensor([ 10., 101.,  10.])
    """

    source: Tensor
    source_ptr: Tensor
    target: Tensor
    target_ptr: Tensor
    degree: Tensor
    order: Tensor | None = None

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int, rowptr: Tensor | None = None) -> Self:
        """Sort the edges both ways; only one way where ``rowptr`` tells where those into each node begin already."""
        source, target = edge_index[0].long(), edge_index[1].long()
        bounds = torch.arange(num_nodes + 1, device=edge_index.device)
        sources, by_source = source.sort(stable=True)
        target_ptr = torch.searchsorted(sources, bounds)
        if rowptr is not None:
            _require_rowptr(rowptr, num_nodes)
            return cls(source, rowptr.long(), target[by_source], target_ptr, rowptr.long().diff())
        targets, by_target = target.sort(stable=True)
        source_ptr = torch.searchsorted(targets, bounds)
        return cls(source[by_target], source_ptr, target[by_source], target_ptr, source_ptr.diff())

    @classmethod
    def on_host(cls, edge_index: Tensor, num_nodes: int, rowptr: Tensor | None = None) -> Self:
        """Do the same on the CPU in less time: edges that come sorted by target are seen to be, and nodes counted."""
        source, target = edge_index[0].long(), edge_index[1].long()
        if rowptr is not None:
            _require_rowptr(rowptr, num_nodes)
        if not bool((target[1:] >= target[:-1]).all()):
            order = target.argsort(stable=True)
            source, target = source[order], target[order]
        degree = torch.bincount(target, minlength=num_nodes)
        by_source = torch.from_numpy(source.numpy().argsort(kind="stable"))
        starts = _starts(source.bincount(minlength=num_nodes))
        return cls(source, _starts(degree), target[by_source], starts, degree, by_source)

    def with_loops(self) -> Adjacency:
        """Add to each node an edge from itself, in front of the others."""
        source, source_ptr = _lead(self.source, self.source_ptr)
        target, target_ptr = _lead(self.target, self.target_ptr)
        return Adjacency(source, source_ptr, target, target_ptr, self.degree + 1)

    def sum(self, x: Tensor) -> Tensor:  # (V, k) -> (V, k)
        """Sum what the neighbours of each node carry."""
        return sum_rows(x, self.source, self.source_ptr, self.target, self.target_ptr)


def sum_rows(x: Tensor, index: Tensor, ptr: Tensor, index_t: Tensor, ptr_t: Tensor) -> Tensor:
    """Multiply by the 0/1 matrix whose row i has ones in the columns ``index[ptr[i]:ptr[i + 1]]``.

    Args:
        x: What is multiplied, ``(columns, k)``.
        index: Columns of the ones, row by row.
        ptr: Where each row begins, one entry more than there are rows.
        index_t: The same of the transposed matrix, for the gradient.
        ptr_t: Likewise.
    """
    if takes(x):
        from phcgnn.nn.kernels.sums import sum_by_lists

        return sum_by_lists(x, index, ptr, index_t, ptr_t)
    return _SumRows.apply(x, index, ptr, index_t, ptr_t)


def add_rows(rows: Tensor, index: Tensor, size: int) -> Tensor:
    """Sum rows (E, k) into the ``size`` sets that ``index`` (E,) names, in float32 or wider; in the rows' own type.

    >>> add_rows(torch.ones(300, 1, dtype=torch.bfloat16), torch.zeros(300, dtype=torch.long), 1).item()  # not 256
    300.0
    """
    wide = rows.float() if rows.dtype in NARROW else rows
    return wide.new_zeros(size, *rows.shape[1:]).index_add(0, index, wide).to(rows.dtype)


def require_edges(where: str, edge_index: Tensor) -> None:
    """Refuse what holds no edges."""
    numbers = not (edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or not numbers:
        raise ShapeError(
            f"{where}: `edge_index` ({edge_index.dtype})",
            got=edge_index.shape,
            expected=(2, "E"),
            hint="it holds the integer source and target of each edge",
        )


def require_nodes(where: str, edge_index: Tensor, nodes: int) -> None:
    """Refuse edges between nodes that do not exist; the host waits for the device."""
    outside = (edge_index < 0) | (edge_index >= nodes)
    if not outside.any():
        return
    row, edge = (int(i) for i in outside.nonzero()[0])
    raise ValueError(
        f"{where}: `edge_index` holds the node {int(edge_index[row, edge])} at [{row}, {edge}], expected 0 to "
        f"{nodes - 1}, as there are {nodes} nodes; number the nodes of each graph from 0 before batching."
    )


def _require_rowptr(rowptr: Tensor, num_nodes: int) -> None:
    if rowptr.shape != (num_nodes + 1,):
        raise ShapeError(
            "Adjacency: `rowptr`",
            got=rowptr.shape,
            expected=(num_nodes + 1,),
            hint="it belongs to edges sorted by target; take it away where nodes were added or removed",
        )


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _lead(index: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    """Put its own number in front of each row."""
    nodes = torch.arange(ptr.shape[0] - 1, device=index.device)
    row = torch.repeat_interleave(nodes, ptr.diff(), output_size=index.shape[0])
    led = index.new_empty(index.shape[0] + nodes.shape[0])
    led[ptr[:-1] + nodes] = nodes
    led[torch.arange(index.shape[0], device=index.device) + row + 1] = index
    return led, ptr + torch.arange(ptr.shape[0], device=ptr.device)


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, index: Tensor, ptr: Tensor, index_t: Tensor, ptr_t: Tensor) -> Tensor:
        if x.shape[0] == 0 or x.shape[1] == 0:
            return x.new_zeros(ptr.shape[0] - 1, x.shape[1])
        return F.embedding_bag(index, x, ptr, mode="sum", include_last_offset=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        index, ptr, index_t, ptr_t = ctx.saved_tensors
        return _SumRows.apply(gradients[0].contiguous(), index_t, ptr_t, index, ptr), None, None, None, None
