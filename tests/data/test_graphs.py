from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from phcgnn.data import GraphStore
from phcgnn.data.pyg import flatten
from phcgnn.errors import DataError

from .conftest import assert_same_graph, make_graphs, make_metadata, sort_edges


def rich(count: int = 23) -> GraphStore:
    graphs = make_graphs(count)
    flat = flatten(graphs)
    return GraphStore.from_flat(
        flat.chunks(),
        metadata=make_metadata(),
        y=flat.y,
        splits={"train": torch.tensor([4, 2, 0]), "test": torch.tensor([5])},
        ids=[f"mol-{i}" for i in range(count)],
        smiles=["C" * i for i in range(count)],
        pos=flat.pos.double(),
        weights=torch.arange(float(count)),
    )


def test_every_graph_comes_back(store, graphs):
    assert len(store) == len(graphs)
    for one, other in zip(store, graphs, strict=True):
        assert_same_graph(one, sort_edges(other))
    assert_same_graph(store[-1], sort_edges(graphs[-1]))
    assert_same_graph(store[np.int64(3)], sort_edges(graphs[3]))
    assert_same_graph(store[torch.tensor(3)], sort_edges(graphs[3]))


def test_texts_and_weights_go_with_a_graph():
    store = rich()
    assert store.pos.dtype == torch.float32
    data = store[3]
    assert (data.id, data.smiles, data.weight.tolist()) == ("mol-3", "CCC", [3.0])
    assert store.batch([3, 1]).weight.tolist() == [3, 1]
    assert "smiles" not in store.batch([3, 1])


def test_texts_and_weights_are_packed_beside_the_graphs_of_pyg(graphs, metadata):
    names = [f"g{i}" for i in range(len(graphs))]
    store = GraphStore.from_pyg(
        graphs, metadata=metadata, ids=names, smiles=["C"] * len(graphs), weights=torch.arange(len(graphs))
    )
    assert (store[5].id, store[5].smiles, float(store[5].weight)) == ("g5", "C", 5.0)
    with pytest.raises(DataError, match="there are 23 graphs, but 22 ids"):
        GraphStore.from_pyg(graphs, metadata=metadata, ids=names[1:])


@pytest.mark.parametrize(
    "chosen", [slice(2, 9), slice(None, None, -2), [5, 4, 4], torch.arange(23) % 2 == 0, [], np.array([-1, 0])], ids=str
)
def test_a_part_is_a_store_whose_splits_follow(chosen):
    store = rich()
    part = store[chosen]
    positions = torch.arange(23).numpy()[np.asarray(chosen, np.int64) if isinstance(chosen, list) else chosen]
    assert len(part) == len(positions)
    for one, i in zip(part, positions.tolist(), strict=True):
        other = store[i]
        assert (one.id, one.smiles) == (other.id, other.smiles)
        for key in ("x", "edge_index", "edge_attr", "y", "pos", "weight"):
            assert torch.equal(one[key].nan_to_num(7), other[key].nan_to_num(7)), key
    for name, split in store.splits.items():
        assert {part.ids[i] for i in part.splits[name].tolist()} == {store.ids[i] for i in split.tolist()} & {*part.ids}


def test_a_part_of_targets_of_nodes():
    graphs = make_graphs()
    for data in graphs:
        data.y = (data.x[:, :1] % 2).float()
    store = GraphStore.from_pyg(graphs, metadata=make_metadata(level="node", targets=("y",)))
    assert torch.equal(store[[5, 3]].y, torch.cat([graphs[5].y, graphs[3].y]))
    assert torch.equal(store[5].y, graphs[5].y)


def test_repr_says_what_a_reader_wants(store):
    text = repr(store)
    for part in ("'small'", "23 graphs", "nodes and", "edges on average", "classification of 2 targets", "MB"):
        assert part in text, part
    assert "splits: train 15 / val 4 / test 4" in text
    assert "splits" not in repr(GraphStore.from_pyg([], metadata=make_metadata()))
    assert "0 graphs, 0.0 nodes" in repr(GraphStore.from_pyg([], metadata=make_metadata()))


def test_size_counts_every_tensor():
    store = rich()
    assert store.nbytes == sum(tensor.nbytes for tensor in store.tensors().values())
    assert store.x.dtype == torch.int16
    assert store.edge_index.dtype == torch.uint8
    assert {"ids.data", "smiles.ptr", "split.train", "weights"} <= store.tensors().keys()


def test_to_and_pickle_keep_everything():
    store = rich()
    small = len(pickle.dumps(store))
    store.batch([1])
    assert len(pickle.dumps(store)) == small  # nothing twice
    for other in (store.to("cpu"), pickle.loads(pickle.dumps(store))):
        assert torch.equal(other.batch([3]).x, store.batch([3]).x)
        assert other.metadata == store.metadata
        assert other.device.type == "cpu"
        for name, tensor in store.tensors().items():
            assert torch.equal(other.tensors()[name].nan_to_num(7), tensor.nan_to_num(7)), name


def test_a_store_on_another_device_keeps_pointers_on_the_host():
    moved = rich().to("meta")
    assert moved.device.type == "meta"
    assert moved.node_ptr.device.type == "cpu"
    assert "on meta" in repr(moved)


def build(**changes):
    graphs = make_graphs()
    flat = flatten(graphs)
    metadata = changes.pop("metadata", make_metadata())
    return GraphStore.from_flat(flat.chunks(), metadata=metadata, **{"y": flat.y, "splits": None, **changes})


CLASSES = {"task": "multiclass", "targets": ("y",), "metric": "accuracy", "num_classes": 3}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"y": torch.zeros(22, 2)}, r"`y` has shape \(22, 2\), expected \(23, 2\)"),
        ({"y": torch.zeros(23)}, r"`y` has shape \(23,\), expected \(23, 2\)"),
        ({"y": torch.zeros(23, 2).double()}, "`y` must be float32"),
        ({"y": torch.full((23, 2), 0.5)}, "target of 'a' of graph 0 is 0.5, expected 0, 1, or NaN"),
        (
            {
                "y": torch.full((23, 1), float("inf")),
                "metadata": make_metadata(task="regression", metric="mae", targets=("y",)),
            },
            "is inf, expected a finite number, or NaN for a gap",
        ),
        (
            {"y": torch.full((23,), 3), "metadata": make_metadata(**CLASSES)},
            "graph 0 is 3, expected a class from 0 to 2",
        ),
        ({"y": torch.zeros(23), "metadata": make_metadata(**CLASSES)}, "must be int64 for the task 'multiclass'"),
        ({"pos": torch.zeros(5, 3)}, r"`pos` has shape \(5, 3\)"),
        ({"weights": torch.zeros(23, 1)}, r"`weights` has shape \(23, 1\), expected \(23,\)"),
        ({"weights": -torch.ones(23)}, "`weights` must be finite and not negative"),
        ({"weights": torch.full((23,), float("nan"))}, "`weights` must be finite and not negative"),
        ({"ids": ["a"]}, "there are 23 graphs, but 1 ids"),
        ({"smiles": ["a"] * 24}, "there are 23 graphs, but 24 smiles"),
        ({"splits": {"train": torch.tensor([23])}}, "split 'train' holds the position 23, but there are 23 graphs"),
        ({"splits": {"train": torch.tensor([-1])}}, "split 'train' holds the position -1"),
        ({"splits": {"train": torch.tensor([0.0])}}, "split 'train' must be a vector of int64"),
        ({"splits": {"": torch.tensor([0])}}, "a split is named by a text of one line"),
        ({"splits": {"a\nb": torch.tensor([0])}}, "a split is named by a text of one line"),
    ],
)
def test_what_does_not_agree_is_refused(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        build(**changes)


def test_gaps_are_legal():
    assert build(y=torch.full((23, 2), float("nan"))).y.isnan().all()
    assert build(y=torch.full((23,), -100), metadata=make_metadata(**CLASSES)).y.eq(-100).all()
    assert build(y=None).batch([3]).y is None


def test_indices_out_of_range(store):
    for index in (23, -24, [23]):
        with pytest.raises(IndexError, match="out of range, there are 23 graphs"):
            store[index]
