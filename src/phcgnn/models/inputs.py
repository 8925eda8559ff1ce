"""What a network reads of a batch, and the check that turns bad input into one clear error."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from phcgnn.errors import ShapeError
from phcgnn.models.config import Features
from phcgnn.nn.adjacency import require_edges, require_nodes

__all__ = ["GraphInputs", "check_inputs", "read_batch"]


class GraphInputs(NamedTuple):
    """A batch as tensors.

    Shapes:
        - **x:** :math:`(V, F_{node})`; its length counts the nodes, even where they carry nothing
        - **edge_index:** :math:`(2, E)`
        - **edge_attr, optional:** :math:`(E, F_{edge})`
        - **ptr:** :math:`(G + 1,)`, where the nodes of each graph begin
        - **node_mask, graph_mask, optional:** :math:`(V,)` and :math:`(G,)`, False at the ghosts of a padded batch
        - **rowptr, optional:** :math:`(V + 1,)`, where the edges into each node begin, if they are sorted by target
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    ptr: Tensor
    node_mask: Tensor | None = None
    graph_mask: Tensor | None = None
    rowptr: Tensor | None = None


def read_batch(batch: Any) -> GraphInputs:
    """Read any object with ``x``, ``edge_index``, ``edge_attr`` and ``ptr`` or ``batch``: a PyG ``Batch`` or ``Data``.

    Without ``ptr`` and ``batch`` it is one graph. ``node_mask`` and ``graph_mask`` are read where there are both,
    ``rowptr`` where ``edges_sorted`` says that it still holds.
    """
    edge_index = getattr(batch, "edge_index", None)
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            f"PHCGNN: expected a batch with a tensor `edge_index`, got {type(batch).__name__} "
            f"with edge_index={edge_index!r}; a graph without edges has torch.empty(2, 0, dtype=torch.long)."
        )
    x = getattr(batch, "x", None)
    if x is None:
        x = edge_index.new_empty(int(batch.num_nodes), 0)
    ptr: Tensor | None = getattr(batch, "ptr", None)
    graph_of_node: Tensor | None = getattr(batch, "batch", None)
    if ptr is None and graph_of_node is None:
        ptr = torch.tensor([0, x.shape[0]], device=edge_index.device)
    elif ptr is None:
        assert graph_of_node is not None
        graphs = getattr(batch, "num_graphs", None)
        if graphs is None:
            graphs = int(graph_of_node[-1]) + 1 if len(graph_of_node) else 0
        if graph_of_node.shape != x.shape[:1] or bool((graph_of_node.diff() < 0).any()):
            raise ValueError(
                f"PHCGNN: `batch` must give the graph of each of the {x.shape[0]} nodes in ascending order, "
                f"got shape {tuple(graph_of_node.shape)}; sort the nodes by graph."
            )
        ptr = torch.searchsorted(graph_of_node, torch.arange(graphs + 1, device=graph_of_node.device))
    node_mask, graph_mask = getattr(batch, "node_mask", None), getattr(batch, "graph_mask", None)
    if node_mask is None or graph_mask is None:
        node_mask = graph_mask = None
    rowptr = getattr(batch, "rowptr", None) if getattr(batch, "edges_sorted", False) else None
    return GraphInputs(x, edge_index, getattr(batch, "edge_attr", None), ptr, node_mask, graph_mask, rowptr)


def check_inputs(inputs: GraphInputs, node_features: Features, edge_features: Features, validate: bool = True) -> None:
    """Refuse what does not fit.

    Shapes and types are always checked; values (indices and categories) only with ``validate``, for which the host
    waits for the device once. Nothing is indexed before.
    """
    x, edge_index, edge_attr, ptr = inputs[:4]
    for name, value in zip(("x", "edge_index", "edge_attr", "ptr"), inputs[:4], strict=True):
        if not isinstance(value, Tensor) and not (name == "edge_attr" and value is None):
            raise TypeError(f"PHCGNN: `{name}` must be a tensor, got {type(value).__name__}; torch.tensor makes one.")
    require_edges("PHCGNN", edge_index)
    if ptr.dim() != 1 or len(ptr) == 0 or ptr.is_floating_point():
        raise ShapeError(
            f"PHCGNN: `ptr` ({ptr.dtype})",
            got=ptr.shape,
            expected=("graphs + 1",),
            hint="it holds the number of the first node of each graph, and at the end the number of nodes",
        )
    _check_columns("x", x, node_features, x.shape[0], "node_features")
    if edge_features is not None and edge_attr is None:
        raise ValueError(
            f"PHCGNN: `edge_attr` is missing, the network was built with edge_features={edge_features}; "
            "give the edges' features or build it with edge_features=None."
        )
    if edge_attr is not None:
        _check_columns("edge_attr", edge_attr, edge_features, edge_index.shape[1], "edge_features")
    if validate and not torch.compiler.is_compiling():
        _check_values(inputs, node_features, edge_features)


def _check_columns(name: str, value: Tensor, features: Features, rows: int, field: str) -> None:
    if features is None:
        return
    count = len(features) if isinstance(features, tuple) else features
    if value.shape != (rows, count) and not (count == 1 and value.shape == (rows,)):
        raise ShapeError(
            f"PHCGNN: `{name}`",
            got=value.shape,
            expected=(rows, count),
            hint=f"the network was built with {field}={features}",
        )
    if isinstance(features, tuple) and (value.is_floating_point() or value.is_complex()):
        raise TypeError(
            f"PHCGNN: `{name}` holds {value.dtype}, expected integers, as the network was built with "
            f"{field}={features}; call `.long()` if these are categories, or build it with {field}={count}."
        )


def _check_values(inputs: GraphInputs, node_features: Features, edge_features: Features) -> None:
    x, edge_index, edge_attr, ptr = inputs[:4]
    nodes = x.shape[0]
    wrong = {
        "edge_index": ((edge_index < 0) | (edge_index >= nodes)).any(),
        "ptr": (ptr.diff() < 0).any() | (ptr[0] != 0) | (ptr[-1] != nodes),
    }
    for name, value, features in (("x", x, node_features), ("edge_attr", edge_attr, edge_features)):
        if isinstance(features, tuple) and value is not None:
            wrong[name] = _outside(value, features).any()
    for name, found in zip(wrong, torch.stack(list(wrong.values())).tolist(), strict=True):
        if found:
            _refuse(name, inputs, node_features if name == "x" else edge_features)


def _outside(value: Tensor, features: tuple[int, ...]) -> Tensor:
    codes = value.reshape(-1, len(features)).long()
    return (codes < 0) | (codes >= torch.tensor(features, device=value.device))


def _refuse(name: str, inputs: GraphInputs, features: Features) -> None:
    x, edge_index, edge_attr, ptr = inputs[:4]
    nodes = x.shape[0]
    if name == "edge_index":
        require_nodes("PHCGNN", edge_index, nodes)
    if name == "ptr":
        raise ValueError(
            f"PHCGNN: `ptr` must rise from 0 to the number of nodes, {nodes}, got {ptr[:8].tolist()}"
            f"{', ...' if len(ptr) > 8 else ''}; it says where the nodes of each graph begin."
        )
    value = x if name == "x" else edge_attr
    assert isinstance(features, tuple)
    assert value is not None
    row, column = (int(i) for i in _outside(value, features).nonzero()[0])
    field = "node_features" if name == "x" else "edge_features"
    raise ValueError(
        f"PHCGNN: `{name}` holds the value {int(value.reshape(-1, len(features))[row, column])} in row {row}, column "
        f"{column}, expected 0 to {features[column] - 1}; the network was built with {field}={features}: "
        "mend the features, or build it with a number large enough."
    )
