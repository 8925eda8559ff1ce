"""From PyTorch Geometric's data sets to flat graphs; without a loop over graphs where they are flat already."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.metadata import NO_CLASS
from phcgnn.errors import DataError, ShapeError

__all__ = ["FlatDataset", "class_numbers", "flatten"]

BLOCK = 2_000_000
"""Edges, about, that are handed over at once."""


@dataclass(frozen=True, slots=True)
class FlatDataset:
    """A PyG data set laid end to end; edges are still numbered within each graph.

    Shapes:
        - **x:** ``(V, F_node)``, **edge_index:** ``(2, E)``, **edge_attr:** ``(E, F_edge)``
        - **node_counts**, **edge_counts:** ``(G,)``, int64
        - **y:** as the data set has it, graphs or nodes end to end; **pos:** ``(V, D)``
        - **y_counts:** ``(G,)``, int64: how many numbers of ``y`` are each graph's
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor
    node_counts: Tensor
    edge_counts: Tensor
    y: Tensor | None
    pos: Tensor | None
    y_counts: Tensor | None = None

    def require_targets(self, expected: Tensor) -> None:
        """Check that each graph has as many targets as it should, and not only all of them together."""
        if self.y_counts is not None:
            _require_counts("y", self.y_counts, expected, "numbers")

    def chunks(self) -> Iterator[FlatGraphs]:
        """Yield the graphs in runs of bounded size."""
        nodes = int(self.node_counts.sum())
        if len(self.x) != nodes:
            raise DataError(f"GraphStore: `num_nodes` adds up to {nodes}, but `x` has {len(self.x)} rows.")
        node_ends, edge_ends = self.node_counts.cumsum(0), self.edge_counts.cumsum(0)
        total = int(edge_ends[-1]) if len(edge_ends) else 0
        marks = torch.searchsorted(edge_ends, torch.arange(BLOCK, max(total, BLOCK), BLOCK)).tolist()
        cuts = sorted({0, *marks, len(edge_ends)})
        for first, last in itertools.pairwise(cuts):
            v = slice(int(node_ends[first - 1]) if first else 0, int(node_ends[last - 1]))
            e = slice(int(edge_ends[first - 1]) if first else 0, int(edge_ends[last - 1]))
            yield FlatGraphs(
                x=self.x[v].numpy(),
                node_counts=_int64(self.node_counts[first:last]),
                edge_index=_narrow(self.edge_index[:, e]).numpy(),
                edge_attr=self.edge_attr[e].numpy(),
                edge_counts=_int64(self.edge_counts[first:last]),
            )


def flatten(dataset: Iterable[Data]) -> FlatDataset:
    """Lay a PyG data set, or any iterable of ``Data``, end to end.

    >>> flat = flatten([Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]])), Data(x=torch.ones(1, 1))])
    >>> flat.node_counts, flat.edge_counts
    (tensor([2, 1]), tensor([1, 0]))
    """
    if isinstance(dataset, Data):
        raise TypeError("GraphStore: expected a data set or an iterable of Data, got one Data; wrap it in a list.")
    if isinstance(dataset, InMemoryDataset) and dataset.transform is None and dataset._indices is None:
        flat = _from_memory(dataset)
        if flat is not None:
            return flat
    return _from_graphs(dataset)


def _from_memory(dataset: InMemoryDataset) -> FlatDataset | None:
    data, slices = dataset._data, dataset.slices
    if not isinstance(data, Data) or slices is None or "edge_index" not in slices:
        return None
    edge_counts = slices["edge_index"].diff()
    if "x" in slices:
        node_counts = slices["x"].diff()
    elif isinstance(counts := getattr(data._store, "_num_nodes", None), list):
        node_counts = torch.tensor(counts)
    else:
        return None
    if len(node_counts) != len(edge_counts) or ("edge_attr" in slices and "edge_attr" not in data):
        return None
    nodes, edges = int(node_counts.sum()), int(edge_counts.sum())
    x = data.x if "x" in slices else None
    edge_attr = data.edge_attr if "edge_attr" in slices else None
    for name, counts in (("edge_attr", edge_counts), ("pos", node_counts)):
        if name in slices:
            _require_counts(name, slices[name].diff(), counts)
    y = data.y if "y" in slices and isinstance(data.y, Tensor) else None
    return FlatDataset(
        x=_matrix(x, nodes),
        edge_index=data.edge_index,
        edge_attr=_matrix(edge_attr, edges),
        node_counts=node_counts,
        edge_counts=edge_counts,
        y=y,
        pos=data.pos if "pos" in slices else None,
        y_counts=None if y is None else slices["y"].diff() * (y.numel() // max(len(y), 1) if y.dim() else 1),
    )


def _from_graphs(graphs: Iterable[Data]) -> FlatDataset:
    parts: dict[str, list[Tensor]] = {name: [] for name in ("x", "edge_index", "edge_attr", "y", "pos")}
    lacking: dict[str, int] = {}
    node_counts: list[int] = []
    edge_counts: list[int] = []
    y_counts: list[int] = []
    for number, data in enumerate(graphs):
        if not isinstance(data, Data):
            raise TypeError(f"GraphStore: graph {number} must be a torch_geometric Data, got {type(data).__name__}.")
        nodes, edges = _count_nodes(data, number), _count_edges(data, number)
        node_counts.append(nodes)
        edge_counts.append(edges)
        y_counts.append(0)
        for name, found in parts.items():
            value = data.get(name)
            if value is not None:
                rows = _rows(value, name, number)
                if name == "y":
                    y_counts[-1] = rows.numel()
                elif name != "edge_index":
                    count = edges if name == "edge_attr" else nodes
                    if len(rows) != count:
                        kind = "edges" if name == "edge_attr" else "nodes"
                        raise DataError(
                            f"GraphStore: `{name}` of graph {number} has {len(rows)} rows, but it has {count} {kind}."
                        )
                    if not count and rows.dim() == 1:
                        continue  # an empty vector says nothing of the width
                if found and rows.shape[1:] != found[0].shape[1:] and name not in ("y", "edge_index"):
                    raise DataError(
                        f"GraphStore: `{name}` of graph {number} has shape {tuple(rows.shape)}, and that of an earlier "
                        f"graph {tuple(found[0].shape)}; all rows must be of one width."
                    )
                found.append(rows)
            elif edges or not name.startswith("edge_"):  # a graph without edges needs to say nothing of them
                lacking.setdefault(name, number)
    for name, number in lacking.items():
        if parts[name]:
            raise DataError(
                f"GraphStore: graph {number} lacks `{name}`, which other graphs have; give it to all or none."
            )
    joined = {name: torch.cat(found, int(name == "edge_index")) if found else None for name, found in parts.items()}
    edge_index = joined["edge_index"]
    return FlatDataset(
        x=_matrix(joined["x"], sum(node_counts)),
        edge_index=torch.empty(2, 0, dtype=torch.int64) if edge_index is None else edge_index,
        edge_attr=_matrix(joined["edge_attr"], sum(edge_counts)),
        node_counts=torch.tensor(node_counts, dtype=torch.int64),
        edge_counts=torch.tensor(edge_counts, dtype=torch.int64),
        y=joined["y"],
        pos=joined["pos"],
        y_counts=None if joined["y"] is None else torch.tensor(y_counts, dtype=torch.int64),
    )


def _count_nodes(data: Data, number: int) -> int:
    nodes = None if data.num_nodes is None else int(data.num_nodes)
    if nodes is None:
        raise DataError(f"GraphStore: graph {number} does not tell its number of nodes; give it `x` or `num_nodes`.")
    return nodes


def _count_edges(data: Data, number: int) -> int:
    edge_index = data.edge_index
    if edge_index is None:
        if "adj_t" in data:
            raise DataError(
                f"GraphStore: graph {number} keeps its edges in `adj_t`; leave ToSparseTensor out, a store takes "
                "`edge_index`."
            )
        return 0
    if edge_index.dim() != 2 or len(edge_index) != 2:
        raise ShapeError(f"GraphStore: `edge_index` of graph {number}", got=edge_index.shape, expected=(2, "edges"))
    return edge_index.shape[1]


def _rows(value: Tensor | float, name: str, number: int) -> Tensor:
    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"GraphStore: `{name}` of graph {number} must be a tensor or a number, got {type(value).__name__}."
        ) from None
    return tensor[None] if tensor.dim() == 0 else tensor


def _require_counts(name: str, found: Tensor, expected: Tensor, what: str = "rows") -> None:
    wrong = (found != expected).nonzero().flatten()
    if len(wrong):
        number = int(wrong[0])
        raise DataError(
            f"GraphStore: `{name}` of graph {number} has {int(found[number])} {what}, expected {int(expected[number])}."
        )


def _narrow(edge_index: Tensor) -> Tensor:
    """Return int32, but leave alone what would change by it, which the checks behind refuse by name."""
    if edge_index.dtype != torch.int64 or not edge_index.numel():
        return edge_index
    limits = torch.iinfo(torch.int32)
    fits = int(edge_index.min()) >= limits.min and int(edge_index.max()) <= limits.max
    return edge_index.to(torch.int32) if fits else edge_index


def class_numbers(y: Tensor) -> Tensor:
    """Return classes as int64, NaN as the number that says that there is none.

    >>> class_numbers(torch.tensor([2.0, float("nan")]))
    tensor([   2, -100])
    """
    if not y.is_floating_point():
        return y.to(torch.int64)
    gap = y.isnan()
    odd = (~gap & (y != y.round())).nonzero()
    if len(odd):
        raise DataError(f"a class is a whole number, got {y[tuple(odd[0].tolist())].item()} in row {int(odd[0][0])}.")
    return torch.where(gap, NO_CLASS, y).to(torch.int64)


def _matrix(values: Tensor | None, rows: int) -> Tensor:
    if values is None:
        return torch.empty(rows, 0)
    if values.dtype == torch.bfloat16:
        values = values.float()  # numpy does not know it
    return values[:, None] if values.dim() == 1 else values


def _int64(counts: Tensor) -> npt.NDArray[np.int64]:
    return counts.to(torch.int64).numpy()
