"""MNIST and CIFAR10 as graphs of superpixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import torch
from torch_geometric.datasets import GNNBenchmarkDataset

from phcgnn.data.benchmarks.base import DATASETS, Benchmark, official_reader, store_of_splits
from phcgnn.data.benchmarks.files import Remote, provide
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import StoreMetadata
from phcgnn.data.progress import Progress
from phcgnn.data.pyg import FlatDataset, flatten
from phcgnn.errors import DataError

__all__ = ["Superpixels"]

SPLITS = ("train", "val", "test")


class Superpixels(Benchmark):
    """Images as :class:`torch_geometric.datasets.GNNBenchmarkDataset` reads them.

    A node's features are its mean colour and, behind it, its position; an edge's is the Gaussian of the distance.

    Args:
        name: ``MNIST`` or ``CIFAR10``.
        colours: Channels of an image.
        train: Images in the training split.
    """

    def __init__(self, name: str, *, colours: int, train: int) -> None:
        self.name = name
        self.metadata = StoreMetadata(
            name=name.lower(),
            task="multiclass",
            targets=("digit" if name == "MNIST" else "object",),
            metric="accuracy",
            node_features=colours + 2,
            edge_features=1,
            num_classes=10,
        )
        self.sizes: Mapping[str, int] = MappingProxyType({"train": train, "val": 5_000, "test": 10_000})

    def read(self, root: Path, progress: Progress) -> GraphStore:
        """Read ``root/MNIST`` or ``root/CIFAR10``."""
        folder = root / self.name
        url = GNNBenchmarkDataset.urls[self.name]
        archive = url.rpartition("/")[2]
        file = f"{archive.removesuffix('.zip')}.pt"
        provide(folder / "raw", [file], [Remote(url, folder / "raw" / archive)], progress)
        parts = {}
        for number, split in enumerate(SPLITS):
            progress(f"reading {split}", number, len(SPLITS))
            with official_reader(folder, [f"raw/{file}"], folder / "processed"):
                dataset = GNNBenchmarkDataset(str(root), name=self.name, split=split)
            parts[split] = _with_positions(flatten(dataset))
        progress("packing")
        return store_of_splits(parts, self.metadata)


def _with_positions(flat: FlatDataset) -> FlatDataset:
    if flat.pos is None:
        raise DataError("superpixels: the graphs carry no `pos`; expected the colour in `x` and the position in `pos`.")
    return replace(flat, x=torch.cat([flat.x, flat.pos], 1), pos=None)


DATASETS.register("mnist")(Superpixels("MNIST", colours=1, train=55_000))
DATASETS.register("cifar10")(Superpixels("CIFAR10", colours=3, train=45_000))
