from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phcgnn.data import FlatGraphs, GraphStore
from phcgnn.data.packing import pack, smallest

from .conftest import make_metadata


def flat(**changes) -> FlatGraphs:
    """Two graphs: a path of three nodes whose edges are out of order, and a single node with a loop."""
    values = {
        "x": np.array([[1, 0], [2, 1], [3, 2], [299, 0]]),
        "node_counts": np.array([3, 1]),
        "edge_index": np.array([[1, 0, 2, 0], [2, 1, 1, 0]], np.int32),
        "edge_attr": np.array([[0, 0], [1, 0], [2, 0], [3, 1]]),
        "edge_counts": np.array([3, 1]),
    }
    return FlatGraphs(**{**values, **changes})


def test_edges_are_sorted_by_destination_and_keep_their_features():
    packed = pack([flat()], make_metadata())
    assert packed.edge_index.tolist() == [[0, 2, 1, 0], [1, 1, 2, 0]]
    assert packed.edge_attr[:, 0].tolist() == [1, 2, 0, 3]
    assert packed.node_ptr.tolist() == [0, 3, 4]
    assert packed.edge_ptr.tolist() == [0, 3, 4]


def test_types_are_the_smallest_that_hold_everything():
    packed = pack([flat(x=flat().x % 3), flat()], make_metadata())
    assert packed.x.dtype == torch.int16  # 299 does not fit into a byte
    assert packed.x.tolist() == [*(flat().x % 3).tolist(), *flat().x.tolist()]
    assert packed.edge_index.dtype == packed.edge_attr.dtype == torch.uint8


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_smallest_keeps_every_integer(values):
    narrow = smallest(np.array(values, np.int64))
    assert narrow.tolist() == values
    if values and narrow.dtype != np.uint8:
        assert min(values) < 0 or max(values) > 255


def test_smallest_of_other_kinds():
    assert smallest(np.array([True, False])).dtype == np.uint8
    assert smallest(np.array([0.5], np.float64)).dtype == np.float32
    with pytest.raises(TypeError, match="integers or real numbers, got complex"):
        smallest(np.array([1j]))


def test_chunks_are_the_same_as_one_run():
    one = pack([flat(), flat()], make_metadata())
    both = FlatGraphs(
        x=np.concatenate([flat().x] * 2),
        node_counts=np.array([3, 1, 3, 1]),
        edge_index=np.concatenate([flat().edge_index] * 2, 1),
        edge_attr=np.concatenate([flat().edge_attr] * 2),
        edge_counts=np.array([3, 1, 3, 1]),
    )
    other = pack([both], make_metadata())
    for name in ("x", "edge_index", "edge_attr", "node_ptr", "edge_ptr"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_no_graphs_and_no_features():
    store = GraphStore.from_flat([], metadata=make_metadata(), y=None, splits=None)
    assert len(store) == 0
    assert store.x.shape == (0, 2)
    assert store.edge_attr.shape == (0, 2)
    bare = flat(x=np.empty((4, 0)), edge_attr=np.empty((4, 0)))
    packed = pack([bare], make_metadata(node_features=None, edge_features=None))
    assert packed.x.shape == (4, 0)


def test_real_features_may_come_as_integers():
    packed = pack([flat()], make_metadata(node_features=2))
    assert packed.x.dtype == torch.float32
    assert packed.x[3].tolist() == [299, 0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"node_counts": np.array([3, 2])}, "`node_counts` add up to 5, but there are 4 rows"),
        ({"node_counts": np.array([5, -1])}, "`node_counts` of graph 3 is -1"),
        ({"edge_counts": np.array([4])}, r"`edge_counts` has shape \(1,\), expected \(2,\)"),
        ({"edge_counts": np.array([2, 1])}, "`edge_counts` add up to 3"),
        ({"edge_counts": np.array([2, 2])}, "graph 3 has an edge from node 2 to node 1, .* and it has 1"),
        ({"edge_index": flat().edge_index - 1}, "graph 2 has an edge from node -1 to node 0"),
        ({"edge_index": flat().edge_index * 1.0}, "`edge_index` must hold integers, got float64"),
        ({"edge_index": flat().edge_index[:1]}, r"`edge_index` has shape \(1, 4\), expected \(2, 4\)"),
        ({"x": flat().x[:, 0]}, r"`x` has shape \(4,\)"),
        ({"x": flat().x[:, :1]}, r"node features has shape \(4, 1\), expected \(\*, 2\)"),
        ({"x": flat().x + np.array([0, 1])}, r"node feature 1 is 3 in graph 2, expected 0 to 2; .*\(300, 3\)"),
        ({"x": flat().x - 1}, "node feature 1 is -1 in graph 2"),
        ({"x": flat().x * 1.0}, "must be integers, got float32"),
        ({"edge_attr": flat().edge_attr * 2}, "edge feature 0 is 4 in graph 2, expected 0 to 3"),
        ({"edge_attr": np.array([[0, 0]] * 3 + [[0, 2]])}, "edge feature 1 is 2 in graph 3"),
    ],
)
def test_what_cannot_be_is_refused_by_number(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pack([flat(), flat(**changes)], make_metadata())


def test_infinite_features_are_refused():
    x = np.array([[0.0, 1.0], [2.0, np.nan], [0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="node feature 1 is nan in graph 0, expected a finite number"):
        pack([flat(x=x)], make_metadata(node_features=2))


def test_a_chunk_is_flat_graphs():
    with pytest.raises(TypeError, match="a chunk must be FlatGraphs, got list"):
        pack([[1]], make_metadata())
