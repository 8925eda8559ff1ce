"""A batch as index arithmetic: no Python loop over graphs, and no wait for the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from phcgnn.data.metadata import NO_CLASS
from phcgnn.data.packing import PackedGraphs

if TYPE_CHECKING:
    from phcgnn.data.graphs import GraphStore

__all__ = ["PaddedShape", "assemble", "select"]

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PaddedShape:
    """The shape that every padded batch has, ghosts counted in.

    Args:
        graphs: Graphs; one more than the batch size, since the last graph is the ghost.
        nodes: Nodes; the ghost has at least one of them.
        edges: Edges.
    """

    graphs: int
    nodes: int
    edges: int


@dataclass(frozen=True, slots=True)
class _Run:
    """The rows of some graphs within the store and within the batch, reckoned on the host."""

    start: Index  # (B,) of each graph in the store
    ptr: Index  # (B + 1,) in the batch

    @classmethod
    def of(cls, ptr: Index, index: Index) -> _Run:
        start = ptr[index]
        ends = np.zeros(len(index) + 1, np.int64)
        np.cumsum(ptr[index + 1] - start, out=ends[1:])
        return cls(start, ends)

    @property
    def total(self) -> int:
        return int(self.ptr[-1])


def assemble(
    store: GraphStore, index: Index, *, shape: PaddedShape | None = None, compact: bool = False, csr: bool = False
) -> Batch:
    """Gather the graphs ``index`` of a store into one batch on the store's device.

    What depends on sizes alone is reckoned on the host, from the host's copy of the pointers, and sent in one copy;
    so every size is known there and nothing waits for the device.

    Args:
        store: Where the graphs are.
        index: ``(B,)``, between 0 and the number of graphs.
        shape: Fill up with ghosts to this shape.
        compact: Leave integer features in the store's small types instead of int64.
        csr: Add ``rowptr``: the edges into node v are ``rowptr[v]`` to ``rowptr[v + 1]``.
    """
    nodes, edges = _Run.of(store.node_ptr_host, index), _Run.of(store.edge_ptr_host, index)
    graphs = len(index)
    slots = graphs if shape is None else shape.graphs
    node_rows = nodes.total if shape is None else shape.nodes
    edge_rows = edges.total if shape is None else shape.edges
    if shape is not None and not (graphs < slots and nodes.total < node_rows and edges.total <= edge_rows):
        raise ValueError(
            f"GraphStore: {graphs} graphs with {nodes.total} nodes and {edges.total} edges do not fit into {shape}, "
            "of which one graph and one node are the ghost's; let the loader choose the shape with pad=True."
        )
    plan = np.zeros((6, slots + 1), np.int64)
    plan[0, : graphs + 1] = nodes.ptr
    plan[0, graphs + 1 : -1] = nodes.total
    plan[0, -1] = node_rows
    plan[1, :slots] = np.diff(plan[0])
    plan[2, :graphs] = nodes.start - nodes.ptr[:-1]
    plan[3, :graphs] = np.diff(edges.ptr)
    plan[4, :graphs] = edges.start - edges.ptr[:-1]
    plan[5, :graphs] = index
    device = store.device
    there = _send(plan, device)
    ptr = there[0]

    graph = torch.repeat_interleave(there[1, :slots], output_size=node_rows)
    node = torch.arange(nodes.total, device=device) + there[2].index_select(0, graph[: nodes.total])
    edge_graph = torch.repeat_interleave(there[3, :graphs], output_size=edges.total)
    edge = torch.arange(edges.total, device=device) + there[4].index_select(0, edge_graph)

    values: dict[str, Any] = {}
    if store.x.shape[1]:
        values["x"] = _gather(store.x, node, node_rows, compact)
    edge_index = store.edge_index.index_select(1, edge) + ptr.index_select(0, edge_graph)
    if shape is not None:
        edge_index = torch.cat([edge_index, _ghost_edges(nodes.total, node_rows, edge_rows - edges.total, device)], 1)
    values["edge_index"] = edge_index
    if store.edge_attr.shape[1]:
        values["edge_attr"] = _gather(store.edge_attr, edge, edge_rows, compact)
    member = there[5, :graphs]
    if store.y is not None:
        of_nodes = store.metadata.level == "node"
        rows, count = (node, node_rows) if of_nodes else (member, slots)
        values["y"] = _gather(store.y, rows, count, True, float("nan") if store.y.is_floating_point() else NO_CLASS)
    if store.pos is not None:
        values["pos"] = _gather(store.pos, node, node_rows, True)
    if store.weights is not None:
        values["weight"] = _gather(store.weights, member, slots, True)

    edge_ptr = np.full(slots + 1, edges.total)
    edge_ptr[: graphs + 1] = edges.ptr
    edge_ptr[-1] = edge_rows
    batch = _new_batch(values, plan[0], edge_ptr, store.metadata.level == "node")
    batch.batch, batch.ptr = graph, ptr
    if "x" not in values:
        batch.num_nodes = node_rows
        batch._num_nodes = plan[1, :slots].tolist()
    batch.edges_sorted = True
    if csr:
        batch.rowptr = torch.searchsorted(edge_index[1], torch.arange(node_rows + 1, device=device))
    if shape is not None:
        batch.node_mask = torch.arange(node_rows, device=device) < nodes.total
        batch.graph_mask = torch.arange(slots, device=device) < graphs
    return batch


def select(store: GraphStore, index: Index) -> tuple[PackedGraphs, Tensor]:
    """Copy the graphs ``index`` out of a store; return them and the rows of their nodes."""

    def rows(ptr: Index) -> tuple[Tensor, Tensor]:
        run = _Run.of(ptr, index)
        found = np.arange(run.total) + np.repeat(run.start - run.ptr[:-1], np.diff(run.ptr))
        return torch.from_numpy(found).to(store.device), torch.from_numpy(run.ptr)

    nodes, node_ptr = rows(store.node_ptr_host)
    edges, edge_ptr = rows(store.edge_ptr_host)
    packed = PackedGraphs(
        x=store.x.index_select(0, nodes),
        edge_index=store.edge_index.index_select(1, edges),
        edge_attr=store.edge_attr.index_select(0, edges),
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
    )
    return packed, nodes


def _send(plan: Index, device: torch.device) -> Tensor:
    here = torch.from_numpy(plan)
    if device.type != "cuda":
        return here.to(device)
    return here.pin_memory().to(device, non_blocking=True)


def _gather(values: Tensor, rows: Tensor, count: int, compact: bool, fill: float = 0) -> Tensor:
    found = values.index_select(0, rows)
    dtype = values.dtype if compact or values.is_floating_point() else torch.int64
    if len(rows) == count:
        return found.to(dtype)
    out = torch.full((count, *values.shape[1:]), fill, dtype=dtype, device=values.device)
    out[: len(rows)] = found
    return out


def _ghost_edges(first: int, nodes: int, edges: int, device: torch.device) -> Tensor:
    """Spread loops evenly over the ghost's nodes, in order, so that no node gathers them all."""
    at = torch.arange(edges, device=device).mul_(nodes - first).div_(max(edges, 1), rounding_mode="floor").add_(first)
    return at.expand(2, -1)


def _new_batch(values: dict[str, Tensor], node_ptr: Index, edge_ptr: Index, node_targets: bool) -> Batch:
    """Wrap tensors in a batch that knows how to give its graphs back."""
    of_nodes, of_edges = torch.from_numpy(node_ptr), torch.from_numpy(edge_ptr)
    of_graphs = torch.arange(len(node_ptr))
    slices = {"x": of_nodes, "pos": of_nodes, "edge_index": of_edges, "edge_attr": of_edges}
    slices |= {"y": of_nodes if node_targets else of_graphs, "weight": of_graphs}
    batch = Batch(_base_cls=Data)
    for name, value in values.items():
        batch[name] = value
    batch._num_graphs = len(node_ptr) - 1
    batch._slice_dict = {name: slices[name] for name in values}
    batch._inc_dict = {name: of_nodes[:-1] if name == "edge_index" else None for name in values}
    return batch
