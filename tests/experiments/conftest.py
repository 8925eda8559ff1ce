"""Every benchmark of the paper as a tiny packed store, and what shrinks its networks to match."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from phcgnn.data import GraphStore
from phcgnn.data.benchmarks import DATASETS

SIZES = {"train": 12, "val": 8, "test": 8}
SMALL = {"model.width": 48, "model.downstream": "[48, 48]", "model.layers": 1}  # every n but 5 and 10 divides 48
SHRINK = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]


def make_benchmark(name: str, sizes: dict[str, int] = SIZES) -> GraphStore:
    """Random graphs that carry what the benchmark's graphs carry."""
    generator = torch.Generator().manual_seed(0)
    metadata = DATASETS[name].metadata

    def features(count: int, what) -> torch.Tensor | None:
        if isinstance(what, tuple):
            return torch.stack([torch.randint(0, size, (count,), generator=generator) for size in what], 1)
        return None if what is None else torch.rand(count, what, generator=generator)

    graphs = []
    for at in range(sum(sizes.values())):
        nodes = int(torch.randint(2, 7, (), generator=generator))
        y = torch.randn(1, 1, generator=generator)
        if metadata.task == "classification":
            y = ((torch.arange(len(metadata.targets)) + at) % 2).float()[None]  # both classes in every split
        elif metadata.task == "multiclass":
            y = torch.tensor([at % metadata.num_classes])
        graphs.append(
            Data(
                x=features(nodes, metadata.node_features),
                num_nodes=nodes,
                edge_index=torch.randint(0, nodes, (2, 2 * nodes), generator=generator),
                edge_attr=features(2 * nodes, metadata.edge_features),
                y=y,
            )
        )
    ends = torch.tensor([0, *sizes.values()]).cumsum(0).tolist()
    splits = {split: torch.arange(*ends[at : at + 2]) for at, split in enumerate(sizes)}
    return GraphStore.from_pyg(graphs, metadata=metadata, splits=splits)


@pytest.fixture(scope="session")
def tiny_benchmarks(tmp_path_factory) -> Path:
    """A folder that holds the six data sets of the paper as NAME.phg, with a few graphs each."""
    root = tmp_path_factory.mktemp("benchmarks")
    for name in ("zinc", "molhiv", "molpcba", "ppa", "mnist", "cifar10"):
        make_benchmark(name).save(root / f"{name}.phg")
    return root
