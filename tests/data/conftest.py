"""Small graphs of every shape that a store has to hold."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from phcgnn.data import GraphStore, StoreMetadata


def make_metadata(**changes) -> StoreMetadata:
    values = {
        "name": "small",
        "task": "classification",
        "targets": ("a", "b"),
        "metric": "roc_auc",
        "node_features": (300, 3),
        "edge_features": (4, 2),
    }
    return StoreMetadata(**{**values, **changes})


def make_graphs(count: int = 23, seed: int = 0) -> list[Data]:
    """Random multigraphs; among them one without nodes, one with a single node, one without edges."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    graphs = []
    for i in range(count):
        nodes = {0: 0, 1: 1, 2: 5}.get(i, int(draw(1, 12)))
        edges = 0 if i in (0, 2) or nodes == 0 else int(draw(1, 30))
        y = torch.randint(0, 2, (1, 2), generator=generator).float()
        y[torch.rand(1, 2, generator=generator) < 0.2] = float("nan")
        graphs.append(
            Data(
                x=torch.cat([draw(0, 300, nodes, 1), draw(0, 3, nodes, 1)], 1),
                edge_index=draw(0, max(nodes, 1), 2, edges),
                edge_attr=torch.cat([draw(0, 4, edges, 1), draw(0, 2, edges, 1)], 1),
                y=y,
                pos=torch.rand(nodes, 3, generator=generator),
            )
        )
    return graphs


def sort_edges(data: Data) -> Data:
    """Sort a graph's edges by destination the slow way; the order of equals stays."""
    order = sorted(range(data.edge_index.shape[1]), key=lambda e: int(data.edge_index[1, e]))
    data = data.clone()
    data.edge_index, data.edge_attr = data.edge_index[:, order], data.edge_attr[order]
    return data


def assert_same_graph(one: Data, other: Data) -> None:
    assert sorted(one.keys()) == sorted(other.keys())
    for key in one.keys():  # noqa: SIM118 (Data is no mapping)
        assert torch.equal(one[key].nan_to_num(7), other[key].nan_to_num(7)), key
        assert one[key].dtype == other[key].dtype, key


@pytest.fixture
def metadata() -> StoreMetadata:
    return make_metadata()


@pytest.fixture
def graphs() -> list[Data]:
    return make_graphs()


@pytest.fixture
def store(graphs, metadata) -> GraphStore:
    splits = {"train": torch.arange(15), "val": torch.arange(15, 19), "test": torch.arange(19, 23)}
    return GraphStore.from_pyg(graphs, metadata=metadata, splits=splits)
