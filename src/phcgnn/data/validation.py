"""What must hold for a run of graphs; used both when a store is built and when one is read from a file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.metadata import NO_CLASS, Features, StoreMetadata
from phcgnn.errors import DataError, ShapeError

__all__ = [
    "require_features",
    "require_flat",
    "require_packed",
    "require_rows",
    "require_shapes",
    "require_splits",
    "require_targets",
]

Array = npt.NDArray[Any]

BLOCK = 2_000_000
"""Edges, about, that are checked at once."""


def require_flat(flat: FlatGraphs, first: int = 0) -> None:
    """Check that sizes agree and that every edge stays inside its graph.

    Args:
        flat: The graphs.
        first: The number of the first of them, for the error text.
    """
    where = "FlatGraphs"
    graphs = len(flat.node_counts)
    for name, counts, rows in (
        ("node_counts", flat.node_counts, len(flat.x)),
        ("edge_counts", flat.edge_counts, flat.edge_index.shape[-1]),
    ):
        if counts.ndim != 1 or len(counts) != graphs:
            raise ShapeError(f"{where}: `{name}`", got=counts.shape, expected=(graphs,))
        if graphs and counts.min() < 0:
            number = int(np.flatnonzero(counts < 0)[0])
            raise DataError(f"{where}: `{name}` of graph {first + number} is {counts[number]}, expected 0 or more.")
        if int(counts.sum()) != rows:
            raise DataError(f"{where}: `{name}` add up to {int(counts.sum())}, but there are {rows} rows.")
    edges = int(flat.edge_counts.sum())
    if flat.edge_index.shape != (2, edges):
        raise ShapeError(f"{where}: `edge_index`", got=flat.edge_index.shape, expected=(2, edges))
    if flat.edge_index.dtype.kind not in "iu":
        raise TypeError(f"{where}: `edge_index` must hold integers, got {flat.edge_index.dtype}.")
    for name, values, rows in (("x", flat.x, len(flat.x)), ("edge_attr", flat.edge_attr, edges)):
        if values.ndim != 2 or len(values) != rows:
            raise ShapeError(f"{where}: `{name}`", got=values.shape, expected=(rows, "features"))
    if not edges:
        return
    limit = np.repeat(flat.node_counts, flat.edge_counts)
    outside = ((flat.edge_index < 0) | (flat.edge_index >= limit)).any(0)
    if outside.any():
        edge = int(np.flatnonzero(outside)[0])
        number = int(np.searchsorted(np.cumsum(flat.edge_counts), edge, side="right"))
        source, target = flat.edge_index[:, edge].tolist()
        raise DataError(
            f"graph {first + number} has an edge from node {source} to node {target}, but its "
            f"nodes are numbered from 0 within the graph and it has {flat.node_counts[number]}."
        )


def require_features(values: Array, features: Features, kind: str, ends: Array | None = None, first: int = 0) -> None:
    """Check one array of features against what the metadata declare.

    Args:
        values: ``(rows, F)``.
        features: The declaration.
        kind: ``"node"`` or ``"edge"``, for the error text.
        ends: Where each graph's rows end, to tell graphs by number.
        first: The number of the first graph.
    """
    declared = f"`{kind}_features` are declared as {features}"
    width = _width(features)
    if values.shape[1] != width:
        raise ShapeError(f"the {kind} features", got=values.shape, expected=("*", width), hint=declared)
    if not values.size:
        return
    if isinstance(features, tuple):
        if values.dtype.kind not in "iub":
            raise TypeError(f"{declared}, so they must be integers, got {values.dtype}.")
        if (values.min(0) >= 0).all() and (values.max(0) < np.array(features)).all():
            return
        outside = (values < 0) | (values >= np.array(features))
        row, column = np.argwhere(outside)[0].tolist()
        expected = f"0 to {features[column] - 1}"
    else:
        if np.isfinite(values).all():
            return
        row, column = np.argwhere(~np.isfinite(values))[0].tolist()
        expected = "a finite number"
    graph = "" if ends is None else f" in graph {first + int(np.searchsorted(ends, row, side='right'))}"
    raise DataError(f"{kind} feature {column} is {values[row, column]}{graph}, expected {expected}; {declared}.")


def require_packed(parts: Mapping[str, Tensor], metadata: StoreMetadata) -> None:
    """Check the values of a whole store, some graphs at a time; its pointers are right already."""
    x, edge_index, edge_attr, node_ptr, edge_ptr = (
        parts[name].cpu().numpy() for name in ("x", "edge_index", "edge_attr", "node_ptr", "edge_ptr")
    )
    marks = np.searchsorted(edge_ptr, np.arange(BLOCK, edge_ptr[-1], BLOCK)).tolist()
    cuts = sorted({0, *marks, len(node_ptr) - 1})
    for first, last in itertools.pairwise(cuts):
        v, e = slice(node_ptr[first], node_ptr[last]), slice(edge_ptr[first], edge_ptr[last])
        flat = FlatGraphs(
            x=x[v],
            node_counts=np.diff(node_ptr[first : last + 1]),
            edge_index=edge_index[:, e],
            edge_attr=edge_attr[e],
            edge_counts=np.diff(edge_ptr[first : last + 1]),
        )
        require_flat(flat, first)
        require_features(flat.x, metadata.node_features, "node", np.cumsum(flat.node_counts), first)
        require_features(flat.edge_attr, metadata.edge_features, "edge", np.cumsum(flat.edge_counts), first)
        destination = flat.edge_index[1] + np.repeat(node_ptr[first:last], flat.edge_counts)
        if (destination[1:] < destination[:-1]).any():
            raise DataError(f"the edges of graphs {first} to {last - 1} are not sorted by destination.")


def require_shapes(x: Tensor, edge_index: Tensor, edge_attr: Tensor, metadata: StoreMetadata) -> None:
    """Check the shapes and types of a whole store's features and edges, which costs nothing however large it is."""
    edges = edge_index.shape[-1] if edge_index.dim() else 0
    if tuple(edge_index.shape) != (2, edges):
        raise ShapeError("`edge_index`", got=edge_index.shape, expected=(2, "edges"))
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise TypeError(f"`edge_index` must hold integers, got {edge_index.dtype}.")
    for name, values, features in (
        ("x", x, metadata.node_features),
        ("edge_attr", edge_attr, metadata.edge_features),
    ):
        width = _width(features)
        if values.dim() != 2 or values.shape[1] != width or (name == "edge_attr" and len(values) != edges):
            rows = edges if name == "edge_attr" else "nodes"
            raise ShapeError(f"`{name}`", got=values.shape, expected=(rows, width))
        if isinstance(features, int):
            if values.dtype != torch.float32:
                raise TypeError(f"`{name}` must be float32, since its features are real numbers, got {values.dtype}.")
        elif features is not None and (values.is_floating_point() or values.dtype in (torch.bool, torch.complex64)):
            raise TypeError(f"`{name}` must be integers, since its features are categories, got {values.dtype}.")


def _width(features: Features) -> int:
    return 0 if features is None else len(features) if isinstance(features, tuple) else features


def require_rows(name: str, values: Tensor, rows: int, columns: int | None = None) -> None:
    """Check a tensor that holds one row a graph or a node."""
    shape: tuple[int | str, ...] = (rows,) if columns is None else (rows, columns)
    if tuple(values.shape) != shape:
        raise ShapeError(f"`{name}`", got=values.shape, expected=shape)


def require_targets(y: Tensor, metadata: StoreMetadata, rows: int) -> None:
    """Check the targets against the task."""
    if metadata.task == "multiclass":
        require_rows("y", y, rows)
        if y.dtype != torch.int64:
            raise TypeError(f"`y` must be int64 for the task 'multiclass', got {y.dtype}.")
        classes = metadata.num_classes or 0
        wrong = ((y < 0) | (y >= classes)) & (y != NO_CLASS)
        expected = f"a class from 0 to {classes - 1}, or {NO_CLASS} for none"
    else:
        require_rows("y", y, rows, len(metadata.targets))
        if y.dtype != torch.float32:
            raise TypeError(f"`y` must be float32 for the task {metadata.task!r}, got {y.dtype}.")
        wrong, expected = y.isinf(), "a finite number, or NaN for a gap"
        if metadata.task == "classification":
            wrong, expected = ~((y == 0) | (y == 1) | y.isnan()), "0, 1, or NaN for a gap"
    if wrong.any():
        row = wrong.nonzero()[0].tolist()
        column = f" of {metadata.targets[row[1]]!r}" if len(row) == 2 else ""
        raise DataError(
            f"the target{column} of {metadata.level} {row[0]} is {y[tuple(row)].item()}, expected {expected}."
        )


def require_splits(splits: Mapping[str, Tensor], graphs: int) -> None:
    """Check that splits hold positions of graphs."""
    for name, index in splits.items():
        if not isinstance(name, str) or not name.isprintable() or not name:
            raise TypeError(f"a split is named by a text of one line, got {name!r}.")
        if index.dim() != 1 or index.dtype != torch.int64:
            raise TypeError(
                f"split {name!r} must be a vector of int64, got {index.dtype} of shape {tuple(index.shape)}."
            )
        low, high = (int(index.min()), int(index.max())) if len(index) else (0, -1)
        if low < 0 or high >= graphs:
            worst = low if low < 0 else high
            raise DataError(f"split {name!r} holds the position {worst}, but there are {graphs} graphs.")
