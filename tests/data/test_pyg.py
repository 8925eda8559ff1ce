from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from phcgnn.data import GraphStore
from phcgnn.data import pyg as module
from phcgnn.data.pyg import flatten
from phcgnn.errors import DataError, ShapeError

from .conftest import assert_same_graph, make_graphs, make_metadata, sort_edges


class Small(InMemoryDataset):
    def __init__(self, graphs, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate(graphs)


def drop(graphs, *names):
    kept = []
    for data in graphs:
        data = data.clone()
        for name in names:
            if name == "x":
                data.num_nodes = len(data.x)
            del data[name]
        kept.append(data)
    return kept


@pytest.mark.parametrize("dropped", [(), ("x",), ("edge_attr",), ("pos", "y"), ("x", "pos", "edge_attr")])
def test_fast_and_slow_ways_agree(dropped):
    graphs = drop(make_graphs(), *dropped)
    dataset = Small(graphs)
    fast, slow = flatten(dataset), flatten(iter(graphs))
    assert module._from_memory(dataset) is not None
    for name in ("x", "edge_index", "edge_attr", "node_counts", "edge_counts", "y", "pos"):
        one, other = getattr(fast, name), getattr(slow, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert torch.equal(one.nan_to_num(7), other.nan_to_num(7)), name


def test_a_transform_or_a_subset_of_a_data_set_is_honoured(metadata):
    graphs = make_graphs()
    doubled = GraphStore.from_pyg(Small(graphs, lambda data: data.update({"pos": data.pos * 2})), metadata=metadata)
    assert torch.equal(doubled[5].pos, graphs[5].pos * 2)
    subset = GraphStore.from_pyg(Small(graphs)[3:6], metadata=metadata)
    assert len(subset) == 3
    assert_same_graph(subset[0], sort_edges(graphs[3]))


def test_blocks_of_any_size_give_the_same_store(monkeypatch, metadata):
    whole = GraphStore.from_pyg(make_graphs(), metadata=metadata)
    for block in (1, 7, 40):
        monkeypatch.setattr(module, "BLOCK", block)
        chunks = list(flatten(make_graphs()).chunks())
        assert len(chunks) > 1
        parts = GraphStore.from_flat(chunks, metadata=metadata, y=whole.y, splits=None, pos=whole.pos)
        for name, tensor in whole.tensors().items():
            assert torch.equal(parts.tensors()[name].nan_to_num(7), tensor.nan_to_num(7)), name


@pytest.mark.parametrize(
    "y, expected",
    [(1.5, [[1.5]]), (torch.tensor(2), [[2.0]]), (torch.tensor([3.0]), [[3.0]]), (torch.tensor([[4.0]]), [[4.0]])],
)
def test_targets_of_every_shape_become_one_row(y, expected):
    metadata = make_metadata(task="regression", metric="mae", targets=("y",), node_features=1, edge_features=None)
    store = GraphStore.from_pyg([Data(x=torch.zeros(2, 1), y=y)] * 2, metadata=metadata)
    assert store.y.tolist() == expected * 2


def test_vectors_of_targets_classes_and_nodes():
    features = {"node_features": 1, "edge_features": None}
    data = Data(x=torch.zeros(2, 1), y=torch.tensor([1.0, 0.0]))
    two = GraphStore.from_pyg([data, data], metadata=make_metadata(**features))
    assert two.y.tolist() == [[1, 0], [1, 0]]
    nodes = GraphStore.from_pyg([data, data], metadata=make_metadata(**features, level="node", targets=("y",)))
    assert nodes.y.tolist() == [[1], [0], [1], [0]]
    classes = {"task": "multiclass", "targets": ("y",), "metric": "accuracy", "num_classes": 4}
    one = GraphStore.from_pyg([Data(x=torch.zeros(2, 1), y=3)], metadata=make_metadata(**features, **classes))
    assert one.y.tolist() == [3]
    assert one.y.dtype == torch.int64


@pytest.mark.parametrize(
    "graphs, error, message",
    [
        (Data(x=torch.zeros(1, 1)), TypeError, "got one Data; wrap it in a list"),
        ([3], TypeError, "graph 0 must be a torch_geometric Data, got int"),
        ([Data(x=torch.zeros(1, 1)), Data(num_nodes=1)], ValueError, "graph 1 lacks `x`, which other graphs have"),
        ([Data(y=1.0)], ValueError, "graph 0 does not tell its number of nodes"),
        ([Data(x=torch.zeros(1, 1), num_nodes=3)], ValueError, "`x` of graph 0 has 1 rows, but it has 3 nodes"),
    ],
)
@pytest.mark.filterwarnings("ignore:Unable to accurately infer")
def test_unusable_graphs_are_refused(graphs, error, message):
    metadata = make_metadata(node_features=1, edge_features=None)
    with pytest.raises(error, match=message):
        GraphStore.from_pyg(graphs, metadata=metadata)


PAIR = torch.tensor([[0, 1], [1, 0]])


def graph(**changes):
    return Data(**{"x": torch.zeros(2, 1), "edge_index": PAIR, "edge_attr": torch.zeros(2, 1), "y": 1.0} | changes)


ONE = {"task": "regression", "targets": ("y",), "metric": "mae"}


@pytest.mark.parametrize("kind", [list, Small])
@pytest.mark.parametrize(
    "one, other, message",
    [  # sizes that agree only when all graphs are taken together
        ({"edge_attr": torch.zeros(1, 1)}, {"edge_attr": torch.zeros(3, 1)}, r"`edge_attr` of graph 0 has 1 rows"),
        ({"pos": torch.zeros(3, 2)}, {"pos": torch.zeros(1, 2)}, r"`pos` of graph 0 has 3 rows"),
        ({"y": torch.zeros(2)}, {"y": torch.zeros(0)}, r"`y` of graph 0 has 2 numbers, expected 1"),
    ],
)
def test_rows_of_one_graph_never_fall_to_another(kind, one, other, message):
    with pytest.raises(DataError, match=message):
        GraphStore.from_pyg(
            kind([graph(**one), graph(**other)]), metadata=make_metadata(node_features=1, edge_features=1, **ONE)
        )


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"edge_index": PAIR + 2**32}, DataError, r"an edge from node 4294967296 to node 4294967297"),
        ({"edge_index": PAIR.double()}, TypeError, "`edge_index` must hold integers, got float64"),
        ({"edge_index": torch.zeros(3, 2).long()}, ShapeError, r"`edge_index` of graph 0 has shape \(3, 2\)"),
        ({"edge_index": torch.zeros(2).long()}, ShapeError, r"`edge_index` of graph 0 has shape \(2,\)"),
        ({"edge_index": None, "edge_attr": None, "adj_t": 1}, DataError, "leave ToSparseTensor out"),
        ({"x": torch.zeros(2, 1, dtype=torch.complex64)}, TypeError, "must be integers or real numbers, got complex64"),
        ({"y": "high"}, TypeError, "`y` of graph 0 must be a tensor or a number, got str"),
    ],
)
def test_graphs_that_are_none_are_refused(changes, error, message):
    metadata = make_metadata(node_features=1, edge_features=1, **ONE)
    with pytest.raises(error, match=message):
        GraphStore.from_pyg([graph(**changes)], metadata=metadata)


def test_rows_of_two_widths_are_refused_by_number():
    with pytest.raises(DataError, match=r"`x` of graph 1 has shape \(2, 2\), and that of an earlier graph \(2, 1\)"):
        flatten([graph(), graph(x=torch.zeros(2, 2))])


def test_where_no_graph_has_an_edge_none_has_to_say_what_an_edge_carries():
    alone = Data(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), y=1.0)
    store = GraphStore.from_pyg([alone] * 3, metadata=make_metadata(node_features=1, edge_features=(5, 2), **ONE))
    assert store.edge_attr.shape == (0, 2)
    mixed = GraphStore.from_pyg(
        [Data(x=torch.zeros(0), edge_attr=torch.zeros(0), edge_index=alone.edge_index, y=1.0), graph()],
        metadata=make_metadata(node_features=1, edge_features=1, **ONE),
    )
    assert mixed.batch([0, 1]).ptr.tolist() == [0, 0, 2]


def test_half_precision_features_become_single():
    metadata = make_metadata(node_features=1, edge_features=1, **ONE)
    store = GraphStore.from_pyg([graph(x=torch.tensor([[1.5], [2.0]], dtype=torch.bfloat16))], metadata=metadata)
    assert store[0].x.tolist() == [[1.5], [2.0]]


def test_classes_given_as_real_numbers():
    metadata = make_metadata(
        node_features=1, edge_features=1, task="multiclass", targets=("y",), metric="accuracy", num_classes=3
    )
    store = GraphStore.from_pyg([graph(y=2.0), graph(y=float("nan"))], metadata=metadata)
    assert store.y.tolist() == [2, -100]
    with pytest.raises(DataError, match=r"a class is a whole number, got 1\.5 in row 1"):
        GraphStore.from_pyg([graph(), graph(y=1.5)], metadata=metadata)
