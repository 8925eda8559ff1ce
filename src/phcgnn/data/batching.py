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

__all__ = ["PaddedShape", "assemble", "real_graphs", "select", "unpad"]

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
    graphs = len(index)
    plan, edge_ptr, nodes, edges = _reckon(store, index, shape)
    slots, node_rows, edge_rows = len(edge_ptr) - 1, int(plan[0, -1]), int(edge_ptr[-1])
    kit = store.gathering
    there = kit.send(plan)
    ptr, member = there[0], there[5, :graphs]

    owners = kit.owners(there[1, :slots], node_rows)
    node = kit.count(nodes) + kit.spread(there[2, :graphs], there[1, :graphs], owners[:nodes])
    edge_owners = kit.owners(there[3, :graphs], edges) if kit.needs_owners else None
    edge = kit.count(edges) + kit.spread(there[4, :graphs], there[3, :graphs], edge_owners)
    first_node = kit.spread(ptr[:graphs], there[3, :graphs], edge_owners)

    edge_index = kit.take("edge_index", edge, 1) + first_node
    if shape is not None:
        edge_index = kit.join(edge_index, _ghost_edges(kit, nodes, node_rows, edge_rows - edges))
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

    extra: dict[str, Any] = {"batch": owners, "ptr": ptr}
    if csr:
        extra["rowptr"] = kit.starts(edge_index[1], node_rows)
    if shape is not None:
        extra |= {"node_mask": kit.count(node_rows) < nodes, "graph_mask": kit.count(slots) < graphs}
    tensors = {name: kit.tensor(value) for name, value in (values | extra).items()}
    about: dict[str, Any] = {"edges_sorted": True}
    if shape is not None:
        about["sizes"] = PaddedShape(graphs, nodes, edges)
    batch = _new_batch(tensors | about, list(values), plan[0], edge_ptr, of_nodes)
    if "x" not in values:
        batch.num_nodes = node_rows
        batch._num_nodes = plan[1, :slots].tolist()
    return batch


def real_graphs(batch: Batch) -> int:
    """Count the graphs of a batch, ghosts and empty ones left out."""
    sizes: PaddedShape | None = batch.get("sizes")
    return int(batch.num_graphs) if sizes is None else sizes.graphs


def unpad(batch: Batch, *, of_nodes: bool = False) -> Batch:
    """Return a padded batch without its ghosts; its tensors are views.

    Args:
        batch: What :func:`assemble` made with a shape.
        of_nodes: Whether targets belong to nodes.

    >>> from phcgnn.data import GraphStore, StoreMetadata
    >>> metadata = StoreMetadata(name="one", task="regression", targets=(), metric="mae", node_features=(9,),
    ...                          edge_features=None)
    >>> graph = Data(x=torch.tensor([[7], [8]]), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> batch = GraphStore.from_pyg([graph], metadata=metadata).batch([0], shape=PaddedShape(3, 8, 8))
    >>> batch.x.shape, unpad(batch).x.shape
    (torch.Size([8, 1]), torch.Size([2, 1]))
    """
    sizes: PaddedShape = batch.sizes
    lengths = dict.fromkeys(("x", "pos", "batch"), sizes.nodes) | {"rowptr": sizes.nodes + 1}
    lengths |= {"edge_attr": sizes.edges, "ptr": sizes.graphs + 1, "weight": sizes.graphs}
    lengths["y"] = sizes.nodes if of_nodes else sizes.graphs
    values = {name: batch[name][:length] for name, length in lengths.items() if name in batch}
    values |= {"edge_index": batch.edge_index[:, : sizes.edges], "edges_sorted": True}
    plain = copy.copy(_EMPTY)
    plain._store._mapping.update(values)
    plain._num_graphs = sizes.graphs
    if "x" not in values:
        plain.num_nodes = sizes.nodes
    return plain


def _run(ptr: Index, index: Index) -> tuple[Index, Index, Index]:
    """Return for graphs put end to end: their rows, from a row there to the row in the store, and where each ends."""
    start = ptr[index]
    counts = ptr[index + 1] - start
    ends = counts.cumsum()
    return counts, start + counts - ends, ends


def _reckon(store: GraphStore, index: Index, shape: PaddedShape | None) -> tuple[Index, Index, int, int]:
    """Reckon what depends on sizes alone.

    Returns:
        The rows ``ptr``, node counts, node shifts, edge counts, edge shifts and ``index``, one column a graph; the
        pointers of edges; and the numbers of nodes and edges that are no ghosts.
    """
    graphs = len(index)
    node_counts, node_shift, node_ends = _run(store.node_ptr_host, index)
    edge_counts, edge_shift, edge_ends = _run(store.edge_ptr_host, index)
    nodes, edges = (int(ends[-1]) if graphs else 0 for ends in (node_ends, edge_ends))
    if shape is None:
        shape = PaddedShape(graphs, nodes, edges)
    elif not (graphs < shape.graphs and nodes < shape.nodes and edges <= shape.edges):
        raise ValueError(
            f"GraphStore: {graphs} graphs with {nodes} nodes and {edges} edges do not fit into {shape}, of which one "
            "graph and one node are the ghost's; let the loader choose the shape with pad=True."
        )
    plan = np.zeros((6, shape.graphs + 1), np.int64)
    plan[0, 1 : graphs + 1] = node_ends
    plan[0, graphs + 1 :] = nodes
    plan[0, -1] = shape.nodes
    plan[1, :graphs] = node_counts
    if shape.graphs > graphs:
        plan[1, -2] = shape.nodes - nodes  # the ghost's
    plan[2:6, :graphs] = node_shift, edge_counts, edge_shift, index
    edge_ptr = np.full(shape.graphs + 1, edges)
    edge_ptr[0], edge_ptr[1 : graphs + 1] = 0, edge_ends
    edge_ptr[-1] = shape.edges
    return plan, edge_ptr, nodes, edges


def select(store: GraphStore, index: Index) -> tuple[PackedGraphs, Tensor]:
    """Copy the graphs ``index`` out of a store; return them and the rows of their nodes."""

    def rows(ptr: Index) -> tuple[Tensor, Tensor]:
        counts, shift, ends = _run(ptr, index)
        found = np.arange(counts.sum()) + shift.repeat(counts)
        return torch.from_numpy(found).to(store.device), torch.from_numpy(np.append(np.int64(0), ends))

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


def _new_batch(values: dict[str, Any], sliced: list[str], node_ptr: Index, edge_ptr: Index, of_nodes: bool) -> Batch:
    """Wrap values in a batch that knows how to give its graphs back.

    Args:
        values: What the batch holds.
        sliced: Which of them its graphs hold too.
        node_ptr: Where each graph's nodes start.
        edge_ptr: Where each graph's edges start.
        of_nodes: Whether targets belong to nodes.
    """
    nodes, edges, graphs = torch.from_numpy(node_ptr), torch.from_numpy(edge_ptr), torch.arange(len(node_ptr))
    slices = {"x": nodes, "pos": nodes, "edge_index": edges, "edge_attr": edges}
    slices |= {"y": nodes if of_nodes else graphs, "weight": graphs}
    batch = copy.copy(_EMPTY)
    batch._store._mapping.update(values)  # one by one would take longer than all the rest here
    batch._num_graphs = len(node_ptr) - 1
    batch._slice_dict = {name: slices[name] for name in sliced}
    batch._inc_dict = {name: nodes[:-1] if name == "edge_index" else None for name in sliced}
    return batch
