"""ZINC: constrained solubility of molecules; the 12,000 of the paper, or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from torch_geometric.datasets import ZINC as OfficialZINC

from phcgnn.data.benchmarks.base import DATASETS, Benchmark, official_reader, store_of_splits
from phcgnn.data.benchmarks.files import Remote, provide
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import StoreMetadata
from phcgnn.data.progress import Progress
from phcgnn.data.pyg import flatten

__all__ = ["Zinc"]

SPLITS = ("train", "val", "test")

FILES = tuple(f"raw/{split}.{kind}" for kind in ("pickle", "index") for split in SPLITS)


class Zinc(Benchmark):
    """ZINC as :class:`torch_geometric.datasets.ZINC` reads it: 28 atom types, 4 bond types (0 is "no bond").

    Args:
        subset: The 12,000 molecules of the paper, or all 249,456.
    """

    def __init__(self, *, subset: bool) -> None:
        self.subset = subset
        self.metadata = StoreMetadata(
            name="zinc" if subset else "zinc-full",
            task="regression",
            targets=("logP_SA_cycle_normalized",),
            metric="mae",
            node_features=(28,),
            edge_features=(4,),
        )
        counts = (10_000, 1_000, 1_000) if subset else (220_011, 24_445, 5_000)
        self.sizes: Mapping[str, int] = MappingProxyType(dict(zip(SPLITS, counts, strict=True)))

    def read(self, root: Path, progress: Progress) -> GraphStore:
        """Read ``root/ZINC``."""
        folder = root / "ZINC"
        raw = folder / "raw"
        pickles, indices = (tuple(f"{split}.{kind}" for split in SPLITS) for kind in ("pickle", "index"))
        remotes = [Remote(OfficialZINC.url, folder / "molecules.zip", "molecules", gives=pickles)]
        for split, index in zip(SPLITS, indices, strict=True):
            remotes.append(Remote(OfficialZINC.split_url.format(split), raw / index, gives=(index,)))
        provide(raw, [*pickles, *indices], remotes, progress)
        parts = {}
        for number, split in enumerate(SPLITS):
            progress(f"reading {split}", number, len(SPLITS))
            with official_reader(folder, FILES, folder / ("subset" if self.subset else "full") / "processed"):
                parts[split] = flatten(OfficialZINC(str(folder), subset=self.subset, split=split))
        progress("packing")
        return store_of_splits(parts, self.metadata)


DATASETS.register("zinc")(Zinc(subset=True))
DATASETS.register("zinc-full")(Zinc(subset=False))
