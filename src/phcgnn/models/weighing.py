"""The softmax over the edges into each node by kernels that make the messages on the way."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from phcgnn.models.edges import EdgeBatch, EdgeEncoder
from phcgnn.nn.eager import is_watched
from phcgnn.nn.encoder import CategoricalEncoder
from phcgnn.nn.kernels.lists import EdgeLists

__all__ = ["weigh_neighbours"]


def weigh_neighbours(h: Tensor, beta: Tensor, encoder: EdgeEncoder | None, edges: EdgeBatch) -> Tensor:
    """Return what :class:`~phcgnn.nn.aggregation.SoftmaxAggregation` makes of the messages of a layer.

    What is the same for all layers, the edges' lists and their features as the kernels read them, is kept in ``edges``.

    Shapes:
        - **h, output:** :math:`(V, k)`
    """
    from phcgnn.nn.kernels.softmax import MOST_ROWS, softmax_of_messages, softmax_of_neighbours
    from phcgnn.nn.kernels.sums import sum_by_lists

    if edges.lists is None:
        edges.lists = EdgeLists.from_edges(edges.edge_index, edges.num_nodes, edges.rowptr)
    lists = edges.lists
    if encoder is None:
        return softmax_of_neighbours(h, beta, lists)
    raw = cast(Tensor, edges.edge_attr)
    of_edges = (encoder,) if isinstance(encoder, CategoricalEncoder) else (encoder, encoder.affine)
    if not is_watched(*of_edges) and not raw.requires_grad:
        table = _table(encoder)
        if table.shape[0] <= MOST_ROWS:
            if edges.codes is None:
                edges.codes = lists.arrange(_codes(encoder, raw))
            return softmax_of_neighbours(h, beta, lists, table, edges.codes)
    one_each = torch.arange(len(lists.source) + 1, device=h.device)
    sent = sum_by_lists(h, lists.source, one_each, lists.leaving, lists.leaving_ptr)  # so that its gradient is a sum
    return softmax_of_messages(sent + encoder(lists.arrange(raw)), beta, lists)


def _table(encoder: EdgeEncoder) -> Tensor:
    if isinstance(encoder, CategoricalEncoder):
        return encoder.weight
    return torch.cat([encoder.affine.weight.T, encoder.affine.bias[None]])


def _codes(encoder: EdgeEncoder, raw: Tensor) -> Tensor:
    if isinstance(encoder, CategoricalEncoder):
        return encoder.codes(raw)
    numbers = raw.reshape(-1, encoder.in_features).to(encoder.affine.weight.dtype)
    return torch.cat([numbers, torch.ones_like(numbers[:, :1])], 1)
