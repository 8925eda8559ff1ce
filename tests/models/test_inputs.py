from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from phcgnn import PHCGNN

NONE = object()


def good(**changes):
    values = {
        "x": torch.tensor([[4, 0], [0, 2], [1, 1]]),
        "edge_index": torch.tensor([[0, 1, 2], [1, 0, 1]]),
        "edge_attr": torch.tensor([[1], [3], [0]]),
    }
    values |= changes
    return Data(**{name: value for name, value in values.items() if value is not NONE})


def model(**options):
    settings = {"node_features": (5, 3), "edge_features": (4,), "n": 2, "width": 8, "layers": 1, "downstream": ()}
    return PHCGNN(**{**settings, **options}).eval()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"x": torch.zeros(3, 1).long()}, r"`x` has shape \(3, 1\), expected \(3, 2\); .*node_features=\(5, 3\)"),
        ({"x": torch.zeros(3, 2)}, r"`x` holds torch.float32, expected integers.*`.long\(\)`.*node_features=2"),
        (
            {"x": torch.tensor([[4, 0], [0, 3], [1, 1]])},
            r"`x` holds the value 3 in row 1, column 1, expected 0 to 2; the network was built with node_features",
        ),
        ({"x": torch.tensor([[-1, 0], [0, 2], [1, 1]])}, "`x` holds the value -1 in row 0, column 0, expected 0 to 4"),
        ({"edge_attr": torch.tensor([[1], [4], [0]])}, "`edge_attr` holds the value 4 in row 1, column 0"),
        ({"edge_attr": torch.tensor([1, 2, 9])}, "`edge_attr` holds the value 9 in row 2"),
        ({"edge_attr": torch.tensor([[1], [3]])}, r"`edge_attr` has shape \(2, 1\), expected \(3, 1\)"),
        ({"edge_attr": NONE}, r"`edge_attr` is missing, the network was built with edge_features=\(4,\)"),
        (
            {"edge_index": torch.tensor([[0, 1, 3], [1, 0, 1]])},
            r"`edge_index` holds the node 3 at \[0, 2\], expected 0 to 2, as there are 3 nodes; number the nodes",
        ),
        ({"edge_index": torch.tensor([[0, 1, 2], [1, -1, 1]])}, r"`edge_index` holds the node -1 at \[1, 1\]"),
        ({"edge_index": torch.zeros(3, 2).long()}, r"`edge_index` \(torch.int64\) has shape \(3, 2\)"),
        ({"edge_index": torch.zeros(2, 3)}, r"`edge_index` \(torch.float32\) has shape"),
        ({"edge_index": NONE}, "expected a batch with a tensor `edge_index`, got Data.*a graph without edges has"),
        ({"x": NONE, "num_nodes": 3}, r"`x` has shape \(3, 0\), expected \(3, 2\)"),
        ({"ptr": torch.tensor([0, 4])}, r"`ptr` must rise from 0 to the number of nodes, 3, got \[0, 4\]"),
        ({"ptr": torch.tensor([0, 2, 1, 3])}, "`ptr` must rise"),
        ({"ptr": torch.tensor([0.0, 3.0])}, r"`ptr` \(torch.float32\) has shape \(2,\), expected \(graphs \+ 1,\)"),
        ({"ptr": torch.tensor([[0, 3]])}, r"`ptr` \(torch.int64\) has shape \(1, 2\)"),
        ({"ptr": torch.tensor([], dtype=torch.long)}, r"`ptr` .*has shape \(0,\)"),
        ({"ptr": [0, 3]}, "`ptr` must be a tensor, got list; torch.tensor makes one"),
        ({"edge_attr": [[1], [3], [0]]}, "`edge_attr` must be a tensor, got list"),
        ({"edge_index": torch.ones(2, 3).bool()}, r"`edge_index` \(torch.bool\)"),
        ({"batch": torch.tensor([0, 1, 0])}, "`batch` must give the graph of each of the 3 nodes in ascending order"),
        ({"batch": torch.tensor([0, 1])}, r"`batch` must give the graph of each of the 3 nodes.*got shape \(2,\)"),
    ],
)
def test_bad_graphs_are_one_clear_error(changes, message):
    network = model()
    assert network(good()).shape == (1, 1)
    with pytest.raises((ValueError, TypeError), match=f"PHCGNN: .*{message}"):
        network(good(**changes))


def test_real_features_of_a_wrong_width():
    network = model(node_features=3, edge_features=2)
    with pytest.raises(ValueError, match=r"`x` has shape \(3, 2\), expected \(3, 3\).*node_features=3"):
        network(good(edge_attr=torch.rand(3, 2)))


def test_what_a_network_does_not_use_is_not_looked_at():
    assert model(edge_features=None)(good(edge_attr=torch.rand(3, 9))).shape == (1, 1)
    assert model(node_features=None)(good(x=torch.rand(3, 9))).shape == (1, 1)


def test_tensors_need_ptr():
    batch = good()
    with pytest.raises(TypeError, match="given tensors, it needs"):
        model()(batch.x, batch.edge_index, batch.edge_attr)


def test_the_check_of_values_can_be_switched_off():
    network = model()
    network.validate = False
    assert network(good()).shape == (1, 1)
    with pytest.raises((IndexError, RuntimeError)):
        network(good(x=torch.tensor([[9, 9], [0, 2], [1, 1]])))
    with pytest.raises(ValueError, match="`edge_attr` is missing"):
        network(good(edge_attr=NONE))


def test_batches_of_pyg_without_ptr():
    network, batch = model(), Batch.from_data_list([good(), good()])
    expected = network(batch)
    del batch.ptr
    torch.testing.assert_close(network(batch), expected)


def test_no_graphs_at_all():
    nothing = {
        "x": torch.zeros(0, 2).long(),
        "edge_index": torch.zeros(2, 0).long(),
        "edge_attr": torch.zeros(0, 1).long(),
    }
    assert model()(good(**nothing, batch=torch.zeros(0, dtype=torch.long))).shape == (0, 1)
    assert model()(good(**nothing, ptr=torch.tensor([0, 0]))).shape == (1, 1)
