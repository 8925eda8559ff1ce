"""What the edges of a batch bring to every layer, prepared once."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from phcgnn.nn.adjacency import Adjacency, add_rows
from phcgnn.nn.encoder import CategoricalEncoder, ContinuousEncoder

__all__ = ["EdgeBatch", "EdgeEncoder"]

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
        self._adjacency: Adjacency | None = None
        self._sums: Tensor | None = None

    @property
    def adjacency(self) -> Adjacency:
        """The edges sorted, when they are first asked for."""
        if self._adjacency is None:
            self._adjacency = Adjacency.from_edges(self.edge_index, self.num_nodes, self.rowptr)
        return self._adjacency

    def sum_embeddings(self, encoder: EdgeEncoder) -> Tensor:  # -> (V, k)
        """Embed the edges by an encoder and sum them at their targets; all encoders given are of one kind."""
        assert self.edge_attr is not None
        target = self.edge_index[1]
        if isinstance(encoder, CategoricalEncoder):
            table = encoder.weight
            categories = table.shape[0]
            if categories > encoder.features:  # counting would take more room than the result
                return add_rows(encoder(self.edge_attr), target, self.num_nodes)
            if self._sums is None:
                cells = (target[:, None] * categories + encoder.codes(self.edge_attr)).flatten()
                counts = add_rows(table.new_ones(cells.shape), cells, self.num_nodes * categories)
                self._sums = counts.view(self.num_nodes, categories)
            return self._sums @ table
        weight = encoder.affine.weight
        if self._sums is None:
            numbers = self.edge_attr.reshape(-1, encoder.in_features).to(weight.dtype)
            self._sums = add_rows(numbers, target, self.num_nodes)
        degree = self.adjacency.degree.to(weight.dtype)[:, None]
        return F.linear(self._sums, weight) + degree * encoder.affine.bias
