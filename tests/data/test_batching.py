from __future__ import annotations

import pickle

import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.nn import GCNConv, global_add_pool

from phcgnn.data import GraphStore, PaddedShape
from phcgnn.data.gathering import OnDevice, OnHost, gathering

from .conftest import assert_same_graph, make_graphs, make_metadata, sort_edges

OWN = {"edges_sorted", "rowptr", "node_mask", "graph_mask"}

CHOICES = ([3], [5, 1, 0, 2], [4, 4, -1, 4], list(range(23)), slice(None, None, -3), [0], [0, 0])


def variants(graphs):
    """The same graphs as stores of every kind: with everything, without features, with targets of nodes, of classes."""
    bare, of_nodes, of_classes = ([data.clone() for data in graphs] for _ in range(3))
    for data in bare:
        data.num_nodes = len(data.x)
        del data["x"], data["edge_attr"], data["pos"], data["y"]
    for data in of_nodes:
        data.y = (data.x[:, :1] % 2).float()
    for number, data in enumerate(of_classes):
        data.y = torch.tensor([number % 3])
    classes = {"task": "multiclass", "targets": ("y",), "metric": "accuracy", "num_classes": 3}
    return {
        "full": (graphs, make_metadata()),
        "bare": (bare, make_metadata(node_features=None, edge_features=None)),
        "nodes": (of_nodes, make_metadata(level="node", targets=("y",))),
        "classes": (of_classes, make_metadata(**classes)),
    }


@pytest.fixture(params=[OnHost, OnDevice], autouse=True)
def _kit(request, monkeypatch):
    """Everything holds for both ways to gather, the one for devices being run on the CPU."""
    monkeypatch.setattr("phcgnn.data.graphs.gathering", request.param)


@pytest.fixture(params=["full", "bare", "nodes", "classes"])
def case(request):
    graphs, metadata = variants(make_graphs())[request.param]
    return GraphStore.from_pyg(graphs, metadata=metadata), graphs


def sorted_graph(data):
    if "edge_attr" in data:
        return sort_edges(data)
    data = data.clone()
    order = sorted(range(data.edge_index.shape[1]), key=lambda e: int(data.edge_index[1, e]))
    data.edge_index = data.edge_index[:, order]
    return data


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_equals_the_collation_of_pyg(case, chosen):
    store, graphs = case
    batch = store.batch(chosen)
    picked = graphs[chosen] if isinstance(chosen, slice) else [graphs[i] for i in chosen]
    expected = Batch.from_data_list([sorted_graph(data) for data in picked])
    assert type(batch) is type(expected)
    assert batch.num_graphs == expected.num_graphs == len(batch)
    assert batch.num_nodes == expected.num_nodes
    assert {*batch.keys()} - OWN == {*expected.keys()}
    for key in expected.keys():  # noqa: SIM118 (a Batch is no mapping)
        one, other = batch[key], expected[key]
        if key == "num_nodes":
            assert one == other
            continue
        assert one.dtype == other.dtype, key
        assert torch.equal(one.nan_to_num(7), other.nan_to_num(7)), key
    assert batch.edges_sorted is True
    assert bool((batch.edge_index[1].diff() >= 0).all())


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_a_batch_gives_its_graphs_back(case, chosen):
    store, graphs = case
    batch = store.batch(chosen)
    picked = graphs[chosen] if isinstance(chosen, slice) else [graphs[i] for i in chosen]
    for one, other in zip(batch.to_data_list(), picked, strict=True):
        if "x" in other:
            assert_same_graph(one, sorted_graph(other))
        assert torch.equal(one.edge_index, sorted_graph(other).edge_index)
        assert one.num_nodes == other.num_nodes
    assert len(batch[:2]) == min(2, len(picked))
    assert torch.equal(batch[len(picked) - 1].edge_index, sorted_graph(picked[-1]).edge_index)
    again = Batch.from_data_list(batch.to_data_list())
    assert torch.equal(again.edge_index, batch.edge_index)


def test_batches_move_pickle_and_feed_a_pyg_model(store):
    batch = store.batch([3, 4, 5])
    assert repr(batch).startswith("DataBatch(")
    copied = pickle.loads(pickle.dumps(batch.clone().to("cpu")))
    assert torch.equal(copied[1].x, batch[1].x)
    torch.manual_seed(0)
    conv = GCNConv(2, 4)
    out = global_add_pool(conv(batch.x.float(), batch.edge_index), batch.batch)
    assert out.shape == (3, 4)
    for i in range(3):
        alone = store[3 + i]
        torch.testing.assert_close(conv(alone.x.float(), alone.edge_index).sum(0), out[i])


def test_compact_keeps_the_small_types(store):
    batch, plain = store.batch([3, 5], compact=True), store.batch([3, 5])
    assert batch.x.dtype == torch.int16
    assert batch.edge_attr.dtype == torch.uint8
    assert batch.edge_index.dtype == torch.int64
    assert plain.x.dtype == plain.edge_attr.dtype == torch.int64
    assert torch.equal(batch.x.long(), plain.x)


@pytest.mark.parametrize("shape", [None, PaddedShape(9, 200, 400)])
def test_rowptr_finds_the_edges_into_a_node(store, shape):
    batch = store.batch([3, 0, 5, 2, 1], csr=True, shape=shape)
    assert "rowptr" not in store.batch([3])
    assert len(batch.rowptr) == batch.num_nodes + 1
    for node in range(batch.num_nodes):
        edges = (batch.edge_index[1] == node).nonzero().flatten().tolist()
        assert edges == list(range(int(batch.rowptr[node]), int(batch.rowptr[node + 1])))


@pytest.mark.parametrize("chosen", [[3, 5, 1], [4], [], [0, 2]], ids=str)
@pytest.mark.parametrize("spare", [1, 40])
def test_padding_adds_one_ghost_graph_and_changes_nothing_else(case, chosen, spare):
    store, _ = case
    plain = store.batch(chosen) if chosen else None
    nodes = plain.num_nodes if chosen else 0
    edges = plain.num_edges if chosen else 0
    shape = PaddedShape(5, nodes + spare, edges + spare)
    batch = store.batch(chosen, shape=shape)
    assert (batch.num_graphs, batch.num_nodes, batch.num_edges) == (5, nodes + spare, edges + spare)
    assert batch.node_mask.tolist() == [True] * nodes + [False] * spare
    assert batch.graph_mask.tolist() == [True] * len(chosen) + [False] * (5 - len(chosen))
    assert batch.batch[nodes:].tolist() == [4] * spare
    assert batch.ptr.tolist()[len(chosen) :] == [nodes] * (5 - len(chosen)) + [nodes + spare]
    if chosen:
        assert torch.equal(batch.edge_index[:, :edges], plain.edge_index)
        assert torch.equal(batch.batch[:nodes], plain.batch)
        for key in {"x", "edge_attr", "y", "pos"} & {*plain.keys()}:
            assert torch.equal(batch[key][: len(plain[key])].nan_to_num(7), plain[key].nan_to_num(7)), key
            assert batch[key].dtype == plain[key].dtype
    ghosts = batch.edge_index[:, edges:]
    assert bool((ghosts[0] == ghosts[1]).all())
    assert ghosts.unique().tolist() == list(range(nodes, nodes + spare))
    assert bool((batch.edge_index[1].diff() >= 0).all())
    for key in {"x", "edge_attr", "pos"} & {*batch.keys()}:
        assert not batch[key][len(batch[key]) - spare :].any(), key
    if "y" in batch:
        rest = batch.y[nodes:] if store.metadata.level == "node" else batch.y[len(chosen) :]
        assert bool((rest == -100).all() if store.metadata.task == "multiclass" else rest.isnan().all())


def test_a_padded_batch_gives_its_graphs_back(store):
    batch = store.batch([3, 5], shape=PaddedShape(4, 50, 90))
    parts = batch.to_data_list()
    assert len(parts) == 4
    assert_same_graph(parts[1], store[5])
    assert parts[2].num_nodes == 0
    assert parts[3].num_nodes == 50 - store[3].num_nodes - store[5].num_nodes


@pytest.mark.parametrize("shape", [PaddedShape(2, 99, 99), PaddedShape(3, 1, 99), PaddedShape(3, 99, 1)])
def test_a_shape_that_is_too_small_is_refused(store, shape):
    with pytest.raises(ValueError, match=r"2 graphs with .* do not fit into PaddedShape.*pad=True"):
        store.batch([3, 5], shape=shape)


def test_an_empty_batch():
    store = GraphStore.from_pyg([], metadata=make_metadata())
    batch = store.batch([])
    assert batch.num_graphs == 0
    assert batch.edge_index.shape == (2, 0)
    assert batch.to_data_list() == []


def test_the_device_decides_how_to_gather(store):
    assert isinstance(gathering({"edge_index": store.edge_index}), OnHost)
    assert isinstance(gathering({"edge_index": store.edge_index.to("meta")}), OnDevice)


def test_a_new_value_reaches_the_next_batch(store):
    store.batch([3])
    store.y = torch.full_like(store.y, 1)
    assert store.batch([3]).y.tolist() == [[1, 1]]
    store.weights = torch.arange(23.0)
    assert store.batch([3]).weight.tolist() == [3]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("shape", [None, PaddedShape(9, 200, 400)])
def test_the_same_on_a_gpu_without_waiting_for_it(store, shape, monkeypatch):
    monkeypatch.undo()
    moved = store.to("cuda")
    assert isinstance(moved.gathering, OnDevice)
    expected = store.batch([5, 3, 0, 3], csr=True, shape=shape)
    moved.batch([5, 3, 0, 3], csr=True, shape=shape)
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = moved.batch([5, 3, 0, 3], csr=True, shape=shape)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for key in expected.keys():  # noqa: SIM118 (a Batch is no mapping)
        if isinstance(expected[key], torch.Tensor):
            assert batch[key].is_cuda
            assert torch.equal(batch[key].cpu().nan_to_num(7), expected[key].nan_to_num(7)), key
