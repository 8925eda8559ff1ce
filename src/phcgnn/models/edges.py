"""What the edges of a batch bring to every layer, prepared once."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from phcgnn.nn.adjacency import Adjacency, add_rows
from phcgnn.nn.affine import outer_sum
from phcgnn.nn.eager import is_watched, plain_on_cpu
from phcgnn.nn.encoder import CategoricalEncoder, ContinuousEncoder
from phcgnn.nn.kernels.lists import EdgeLists

__all__ = ["EdgeBatch", "EdgeEncoder"]

MOST_KINDS = 256
"""More combinations of categories than this are not tabulated."""

EdgeEncoder = CategoricalEncoder | ContinuousEncoder


class EdgeBatch:
    r"""The edges of a batch.

    A sum of embeddings is an embedding of sums: with the numbers of a node's incoming edges of each category as the
    rows of :math:`\mathbf{B}`, :math:`\sum_u \mathbf{e}_{uv}` is row v of :math:`\mathbf{B}\mathbf{T}`, where
    :math:`\mathbf{T}` is the table of a layer's encoder. :math:`\mathbf{B}` is the same for all layers, and small. Real
    features are summed likewise before the linear map.

    Args:
        edge_index: ``(2, E)``
        edge_attr: ``(E, F)``, raw.
        num_nodes: V
        rowptr: ``(V + 1,)``, where the edges into each node begin, if they are sorted by target.
    """

    def __init__(
        self, edge_index: Tensor, edge_attr: Tensor | None, num_nodes: int, rowptr: Tensor | None = None
    ) -> None:
        self.edge_index, self.edge_attr, self.num_nodes = edge_index.long(), edge_attr, num_nodes
        self.rowptr = rowptr
        self.on_host = plain_on_cpu(self.edge_index)
        self._adjacency: Adjacency | None = None
        self._closed: Adjacency | None = None
        self._sums: Tensor | None = None
        self._sorted: Tensor | None = None
        self._kinds: tuple[Tensor, Tensor, Tensor] | None = None
        self.lists: EdgeLists | None = None
        self.codes: Tensor | None = None

    @property
    def adjacency(self) -> Adjacency:
        """The edges sorted, when they are first asked for."""
        if self._adjacency is None:
            make = Adjacency.on_host if self.on_host else Adjacency.from_edges
            self._adjacency = make(self.edge_index, self.num_nodes, self.rowptr)
        return self._adjacency

    def sum_with_own(self, h: Tensor, encoder: EdgeEncoder | None) -> Tensor:  # (V, k) -> (V, k)
        """Return ``h`` plus the sum of what the neighbours and the edges carry, in as few passes as the CPU can."""
        if self._closed is None:
            self._closed = self.adjacency.with_loops()
        together = self._closed.sum(h)
        if encoder is None:
            return together
        if isinstance(encoder, CategoricalEncoder) and self._counts(encoder):
            return torch.addmm(together, cast(Tensor, self._sums), encoder.weight)
        return together + self.sum_embeddings(encoder)

    def messages(self, h: Tensor, encoder: EdgeEncoder | None) -> Tensor:  # (V, k) -> (E, k)
        """Return what the edges carry, those into one node after those into the node before; on the CPU alone."""
        if encoder is None:
            return h.index_select(0, self.adjacency.source)
        if self._sorted is None:
            self._sorted = self._sort()
        if isinstance(encoder, CategoricalEncoder) and not is_watched(encoder):
            kinds = math.prod(encoder.cardinalities)
            if kinds <= MOST_KINDS and kinds <= self.num_nodes:
                return self._messages_of_kinds(h, encoder)
        return h.index_select(0, self.adjacency.source) + encoder(self._sorted)

    def _messages_of_kinds(self, h: Tensor, encoder: CategoricalEncoder) -> Tensor:
        """Return the messages where all edges are of a few kinds: two rows of one table are added for each."""
        adjacency = self.adjacency
        if self._kinds is None:
            assert self._sorted is not None
            every = torch.cartesian_prod(*(torch.arange(count) for count in encoder.cardinalities))
            steps = [math.prod(encoder.cardinalities[i + 1 :]) for i in range(len(encoder.cardinalities))]
            kind = (self._sorted.reshape(-1, len(steps)).long() * torch.tensor(steps)).sum(1)
            rows = torch.stack([adjacency.source, kind + self.num_nodes], dim=1)
            self._kinds = rows, encoder.one_hot(every), encoder.one_hot(self._sorted)
        rows, every, own = self._kinds
        return _AddKinds.apply(h, encoder.weight, rows, every, own, adjacency.order, adjacency.target_ptr)

    def _sort(self) -> Tensor:
        """Return the raw features in the order of the adjacency."""
        assert self.edge_attr is not None
        target = self.edge_index[1]
        if bool((target[1:] >= target[:-1]).all()):
            return self.edge_attr
        return self.edge_attr[target.argsort(stable=True)]

    def _counts(self, encoder: CategoricalEncoder) -> bool:
        """Count the categories at each node, unless that takes more room than the result or the call is waited for."""
        assert self.edge_attr is not None
        table = encoder.weight
        categories = table.shape[0]
        if categories > encoder.features or is_watched(encoder):
            return False
        if self._sums is None:
            cells = (self.edge_index[1][:, None] * categories + encoder.codes(self.edge_attr)).flatten()
            counts = add_rows(table.new_ones(cells.shape), cells, self.num_nodes * categories)
            self._sums = counts.view(self.num_nodes, categories)
        return True

    def sum_embeddings(self, encoder: EdgeEncoder) -> Tensor:  # -> (V, k)
        """Embed the edges by an encoder and sum them at their targets; all encoders given are of one kind."""
        assert self.edge_attr is not None
        target = self.edge_index[1]
        if isinstance(encoder, CategoricalEncoder):
            if not self._counts(encoder):
                return add_rows(encoder(self.edge_attr), target, self.num_nodes)
            return cast(Tensor, self._sums) @ encoder.weight
        if is_watched(encoder, encoder.affine):
            return add_rows(encoder(self.edge_attr), target, self.num_nodes)
        weight = encoder.affine.weight
        if self._sums is None:
            numbers = self.edge_attr.reshape(-1, encoder.in_features).to(weight.dtype)
            self._sums = add_rows(numbers, target, self.num_nodes)
        degree = self.adjacency.degree.to(weight.dtype)[:, None]
        return F.linear(self._sums, weight) + degree * encoder.affine.bias


class _AddKinds(torch.autograd.Function):
    """Rows of the nodes plus embeddings of the edges, with one gather: ``h[source] + own @ table``."""

    # forward takes the context: with setup_context, torch would read the signature again at every call

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, table: Tensor, rows: Tensor, every: Tensor, own: Tensor, order: Tensor, ptr: Tensor
    ) -> Tensor:
        ctx.save_for_backward(rows, own, order, ptr)
        return F.embedding_bag(rows, torch.cat([h, every @ table]), mode="sum")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (rows, own, order, ptr), gradient = ctx.saved_tensors, gradients[0]
        if torch.is_grad_enabled() or not plain_on_cpu(gradient):  # wanted twice, or many at once
            zeros = gradient.new_zeros(len(ptr) - 1, gradient.shape[1])
            of_h = zeros.index_add(0, rows[:, 0], gradient)
        else:
            of_h = F.embedding_bag(order, gradient.contiguous(), ptr, mode="sum", include_last_offset=True)
        return of_h, outer_sum(own, gradient), *(None,) * 5
