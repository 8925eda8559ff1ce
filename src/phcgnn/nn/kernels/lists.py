"""Who sends to whom, as the kernels of the softmax read it."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

__all__ = ["EdgeLists"]


class EdgeLists(NamedTuple):
    """Edges listed by their target, and their places in that list by their source.

    Shapes:
        - **source, target:** ``(E,)``, of the edges sorted by target
        - **ptr:** ``(V + 1,)``, where the edges into each node begin
        - **leaving:** ``(E,)``, places of the edges sorted by source
        - **leaving_ptr:** ``(V + 1,)``, where those from each node begin among these
        - **order:** ``(E,)``, from the sorted edges to those given; None if they came sorted

    >>> lists = EdgeLists.from_edges(torch.tensor([[1, 2, 0], [0, 0, 1]]), 3)
    >>> lists.ptr.tolist(), lists.leaving.tolist(), lists.leaving_ptr.tolist()
    ([0, 2, 3, 3], [2, 0, 1], [0, 1, 2, 3])
    """

    source: Tensor
    target: Tensor
    ptr: Tensor
    leaving: Tensor
    leaving_ptr: Tensor
    order: Tensor | None

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int, rowptr: Tensor | None = None) -> Self:
        """Sort the edges; by source alone where ``rowptr`` tells where those into each node begin already."""
        source, target = edge_index[0], edge_index[1]
        bounds, order = torch.arange(num_nodes + 1, device=edge_index.device), None
        if rowptr is None:
            target, order = target.sort(stable=True)
            source, rowptr = source[order], torch.searchsorted(target, bounds)
        sources, leaving = source.sort(stable=True)
        return cls(source, target, rowptr, leaving, torch.searchsorted(sources, bounds), order)

    def arrange(self, rows: Tensor) -> Tensor:
        """Bring what belongs to the edges given, row by row, into the order of these."""
        return rows if self.order is None else rows[self.order]
