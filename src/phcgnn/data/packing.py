"""From runs of graphs to the tensors of a store: checked, sorted by destination, in the smallest types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.metadata import Features, StoreMetadata
from phcgnn.data.validation import require_features, require_flat

__all__ = ["PackedGraphs", "pack", "smallest"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PackedGraphs:
    """All graphs of a store.

    Shapes:
        - **x:** ``(V, F_node)``
        - **edge_index:** ``(2, E)``, numbered within each graph and sorted by destination
        - **edge_attr:** ``(E, F_edge)``
        - **node_ptr**, **edge_ptr:** ``(G + 1,)``, int64: where each graph starts
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor
    node_ptr: Tensor
    edge_ptr: Tensor


def pack(chunks: Iterable[FlatGraphs], metadata: StoreMetadata) -> PackedGraphs:
    """Check, sort and narrow chunk by chunk, so that what is held is little more than the result."""
    parts = [_empty(metadata)]
    graphs = 0
    for chunk in chunks:
        if not isinstance(chunk, FlatGraphs):
            raise TypeError(f"GraphStore: a chunk must be FlatGraphs, got {type(chunk).__name__}.")
        parts.append(_pack_chunk(chunk, metadata, graphs))
        graphs += len(chunk)
    return PackedGraphs(
        x=torch.from_numpy(np.concatenate([part.x for part in parts])),
        edge_index=torch.from_numpy(np.concatenate([part.edge_index for part in parts], axis=1)),
        edge_attr=torch.from_numpy(np.concatenate([part.edge_attr for part in parts])),
        node_ptr=_pointers([part.node_counts for part in parts]),
        edge_ptr=_pointers([part.edge_counts for part in parts]),
    )


def smallest(values: Array) -> Array:
    """Return integers in the smallest type that holds them, real numbers as float32.

    >>> smallest(np.array([0, 200])).dtype, smallest(np.array([-1, 200])).dtype, smallest(np.array([0.5])).dtype
    (dtype('uint8'), dtype('int16'), dtype('float32'))
    """
    if values.dtype.kind == "f":
        return values.astype(np.float32, copy=False)
    if values.dtype.kind not in "iub":
        raise TypeError(f"GraphStore: features must be integers or real numbers, got {values.dtype}.")
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for dtype in (np.uint8, np.int8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return values.astype(dtype, copy=False)
    return values.astype(np.int64, copy=False)


def _pack_chunk(chunk: FlatGraphs, metadata: StoreMetadata, first: int) -> FlatGraphs:
    require_flat(chunk, first)
    x, edge_attr = _typed(chunk.x, metadata.node_features), _typed(chunk.edge_attr, metadata.edge_features)
    if not len(edge_attr):  # where no graph has an edge, none says how much one would carry
        edge_attr = _empty(metadata).edge_attr
    require_features(x, metadata.node_features, "node", np.cumsum(chunk.node_counts), first)
    require_features(edge_attr, metadata.edge_features, "edge", np.cumsum(chunk.edge_counts), first)
    edge_index = chunk.edge_index
    graph_start = np.cumsum(chunk.node_counts) - chunk.node_counts
    destination = edge_index[1] + np.repeat(graph_start, chunk.edge_counts)
    if (destination[1:] < destination[:-1]).any():
        order = np.argsort(destination, kind="stable")
        edge_index, edge_attr = edge_index[:, order], edge_attr[order]
    return FlatGraphs(
        x=x,
        node_counts=chunk.node_counts,
        edge_index=smallest(edge_index),
        edge_attr=edge_attr,
        edge_counts=chunk.edge_counts,
    )


def _typed(values: Array, features: Features) -> Array:
    if isinstance(features, int) and values.dtype.kind in "iufb":
        values = values.astype(np.float32, copy=False)
    return smallest(values)


def _empty(metadata: StoreMetadata) -> FlatGraphs:
    def nothing(features: Features) -> Array:
        width = 0 if features is None else len(features) if isinstance(features, tuple) else features
        return np.empty((0, width), np.float32 if isinstance(features, int) else np.uint8)

    none = np.empty(0, np.int64)
    return FlatGraphs(
        x=nothing(metadata.node_features),
        node_counts=none,
        edge_index=np.empty((2, 0), np.uint8),
        edge_attr=nothing(metadata.edge_features),
        edge_counts=none,
    )


def _pointers(counts: list[npt.NDArray[np.int64]]) -> Tensor:
    joined = np.concatenate(counts)
    ptr = np.zeros(len(joined) + 1, np.int64)
    np.cumsum(joined, out=ptr[1:])
    return torch.from_numpy(ptr)
