"""A batch as index arithmetic: no Python loop over graphs, and no wait for the device."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from phcgnn.data.gathering import OnDevice, OnHost
from phcgnn.data.metadata import NO_CLASS
from phcgnn.data.packing import PackedGraphs

if TYPE_CHECKING:
    from phcgnn.data.graphs import GraphStore

__all__ = ["PaddedShape", "assemble", "select"]

Index = npt.NDArray[np.int64]

_EMPTY = Batch(_base_cls=Data)
"""Copied for every batch: making one anew inspects signatures, which takes ten times as long."""


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
    kit = store.gathering
    there = kit.send(plan)
    ptr, member = there[0], there[5, :graphs]

    owners = kit.owners(there[1, :slots], node_rows)
    node = kit.count(nodes.total) + kit.spread(there[2, :graphs], there[1, :graphs], owners[: nodes.total])
    edge_owners = kit.owners(there[3, :graphs], edges.total) if kit.needs_owners else None
    edge = kit.count(edges.total) + kit.spread(there[4, :graphs], there[3, :graphs], edge_owners)
    first_node = kit.spread(ptr[:graphs], there[3, :graphs], edge_owners)

    edge_index = kit.take("edge_index", edge, 1) + first_node
    if shape is not None:
        edge_index = kit.join(edge_index, _ghost_edges(kit, nodes.total, node_rows, edge_rows - edges.total))
    values: dict[str, Any] = {}
    if "x" in kit.arrays:
        values["x"] = kit.fill(kit.take("x", node), node_rows, 0, not compact)
    values["edge_index"] = edge_index
    if "edge_attr" in kit.arrays:
        values["edge_attr"] = kit.fill(kit.take("edge_attr", edge), edge_rows, 0, not compact)
    of_nodes = store.metadata.level == "node"
    if "y" in kit.arrays:
        rows, count = (node, node_rows) if of_nodes else (member, slots)
        gap = NO_CLASS if store.metadata.task == "multiclass" else float("nan")
        values["y"] = kit.fill(kit.take("y", rows), count, gap, False)
    if "pos" in kit.arrays:
        values["pos"] = kit.fill(kit.take("pos", node), node_rows, 0, False)
    if "weights" in kit.arrays:
        values["weight"] = kit.fill(kit.take("weights", member), slots, 0, False)

    edge_ptr = np.full(slots + 1, edges.total)
    edge_ptr[: graphs + 1] = edges.ptr
    edge_ptr[-1] = edge_rows
    batch = _new_batch({name: kit.tensor(value) for name, value in values.items()}, plan[0], edge_ptr, of_nodes)
    batch.batch, batch.ptr = kit.tensor(owners), kit.tensor(ptr)
    if "x" not in values:
        batch.num_nodes = node_rows
        batch._num_nodes = plan[1, :slots].tolist()
    batch.edges_sorted = True
    if csr:
        batch.rowptr = kit.tensor(kit.starts(edge_index[1], node_rows))
    if shape is not None:
        batch.node_mask = kit.tensor(kit.count(node_rows) < nodes.total)
        batch.graph_mask = kit.tensor(kit.count(slots) < graphs)
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


def _ghost_edges(kit: OnHost | OnDevice, first: int, nodes: int, edges: int) -> Any:
    """Spread loops evenly over the ghost's nodes, in order, so that no node gathers them all."""
    at = kit.count(edges) * (nodes - first) // max(edges, 1) + first
    return at.reshape(1, -1).repeat(2, 0) if isinstance(kit, OnHost) else at.expand(2, -1)


def _new_batch(values: dict[str, Tensor], node_ptr: Index, edge_ptr: Index, node_targets: bool) -> Batch:
    """Wrap tensors in a batch that knows how to give its graphs back."""
    of_nodes, of_edges = torch.from_numpy(node_ptr), torch.from_numpy(edge_ptr)
    of_graphs = torch.arange(len(node_ptr))
    slices = {"x": of_nodes, "pos": of_nodes, "edge_index": of_edges, "edge_attr": of_edges}
    slices |= {"y": of_nodes if node_targets else of_graphs, "weight": of_graphs}
    batch = copy.copy(_EMPTY)
    for name, value in values.items():
        batch[name] = value
    batch._num_graphs = len(node_ptr) - 1
    batch._slice_dict = {name: slices[name] for name in values}
    batch._inc_dict = {name: of_nodes[:-1] if name == "edge_index" else None for name in values}
    return batch
