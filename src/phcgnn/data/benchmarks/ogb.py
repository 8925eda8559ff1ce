"""The graph property benchmarks of the Open Graph Benchmark: molhiv, molpcba, ppa."""

from __future__ import annotations

import contextlib
import csv
import gzip
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from phcgnn.data.benchmarks.base import DATASETS, Benchmark, official_reader
from phcgnn.data.benchmarks.files import Remote, provide
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import StoreMetadata
from phcgnn.data.progress import Progress
from phcgnn.data.pyg import class_numbers, flatten
from phcgnn.errors import DataError

if TYPE_CHECKING:
    from ogb.graphproppred import PygGraphPropPredDataset

__all__ = ["ATOM_FEATURES", "BOND_FEATURES", "OpenGraphBenchmark"]

ATOM_FEATURES = (119, 4, 12, 12, 10, 6, 6, 2, 2)
"""Categories of OGB's nine atom features. Later OGB tells a fifth chirality, which its data sets do not hold."""

BOND_FEATURES = (5, 6, 2)
"""Categories of OGB's three bond features."""

SPLITS = {"train": "train", "val": "valid", "test": "test"}
"""Our name of a split, and OGB's."""


class OpenGraphBenchmark(Benchmark):
    """A data set as OGB's ``PygGraphPropPredDataset`` reads it, with OGB's own split.

    Args:
        name: OGB's name, e.g. ``ogbg-molhiv``.
        split: OGB's name of the way it is split.
        metadata: What the data set says about itself; the targets get the names in
            ``mapping/mol.csv.gz`` if it is there.
        sizes: Graphs in the training, validation and test splits.
    """

    def __init__(self, name: str, *, split: str, metadata: StoreMetadata, sizes: tuple[int, int, int]) -> None:
        self.name, self.split, self.metadata = name, split, metadata
        self.sizes: Mapping[str, int] = MappingProxyType(dict(zip(SPLITS, sizes, strict=True)))

    def read(self, root: Path, progress: Progress) -> GraphStore:
        """Read ``root/ogbg_molhiv`` and the like."""
        official = _official(self.name)
        folder = root / self.name.replace("-", "_")
        if (pyg := folder.with_name(f"{folder.name}_pyg")).is_dir():  # OGB looks there first
            folder = pyg
        raw = ["edge", "edge-feat", "graph-label", "num-edge-list", "num-node-list"]
        raw += [] if self.metadata.node_features is None else ["node-feat"]
        files = [f"raw/{name}.csv.gz" for name in raw]
        files += [f"split/{self.split}/{name}.csv.gz" for name in SPLITS.values()]
        # OGB asks on the keyboard where this mark of its version is missing
        files.append(f"RELEASE_v{official['version']}.txt")
        inner = official["download_name"]
        provide(folder, files, [Remote(official["url"], root / official["url"].rpartition("/")[2], inner)], progress)
        progress(f"reading {self.name}")
        with official_reader(folder, files, folder / "processed"):
            dataset, split = _read(self.name, root)
        flat = flatten(dataset)
        progress("packing")
        targets, smiles = _mapping(folder)
        metadata = self.metadata
        if len(targets) == len(metadata.targets):
            metadata = replace(metadata, targets=targets)
        if flat.y is None:
            raise DataError(f"{folder} holds no targets; replace it by a complete copy.")
        return GraphStore.from_flat(
            flat.chunks(),
            metadata=metadata,
            y=class_numbers(flat.y[:, 0]) if metadata.task == "multiclass" else flat.y.float(),
            splits=split,
            smiles=smiles if smiles is not None and len(smiles) == len(flat.node_counts) else None,
        )


def _official(name: str) -> dict[str, str]:
    """Return what OGB's own table says about a data set."""
    try:
        with _no_version_check():
            import ogb.graphproppred
    except ImportError as error:
        raise DataError(f"{name} is read by the package ogb, which is missing: pip install 'phcgnn[ogb]'.") from error
    with Path(ogb.graphproppred.__file__).with_name("master.csv").open(newline="") as file:
        return {row[""]: row[name] for row in csv.DictReader(file)}


@contextlib.contextmanager
def _no_version_check() -> Iterator[None]:
    """Import ogb without the thread that asks PyPI for a newer one and, where no answer comes, never ends."""
    known = sys.modules.get("outdated")
    sys.modules["outdated"] = None  # type: ignore[assignment]  # ogb does without
    try:
        yield
    finally:
        if known is None:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = known


def _read(name: str, root: Path) -> tuple[PygGraphPropPredDataset, dict[str, Tensor]]:
    """Read by OGB's own class.

    It calls ``torch.load`` on what it wrote itself and relies on the old default, ``weights_only=False``. For the
    duration of the call the classes in that file are declared safe, so that the new default reads it too.
    """
    from ogb.graphproppred import PygGraphPropPredDataset

    with _declared_safe(Data, DataEdgeAttr, DataTensorAttr, GlobalStorage):
        dataset = PygGraphPropPredDataset(name, root=str(root))
        found = dataset.get_idx_split()
    return dataset, {ours: torch.as_tensor(found[theirs], dtype=torch.int64) for ours, theirs in SPLITS.items()}


_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def _declared_safe(*classes: type) -> Iterator[None]:
    """Let ``torch.load`` take classes, and afterwards no others than before.

    Torch's list is one for all threads, and leaving :class:`torch.serialization.safe_globals` takes its classes off the
    list even where PyG, or the user, had put them there before; so only what is missing is added, by one thread at a
    time.
    """
    with _ONE_AT_A_TIME:
        known = torch.serialization.get_safe_globals()
        with torch.serialization.safe_globals([one for one in classes if one not in known]):
            yield


def _mapping(folder: Path) -> tuple[tuple[str, ...], list[str] | None]:
    """Return the names of the targets and the SMILES that OGB gives along with its molecules."""
    path = folder / "mapping" / "mol.csv.gz"
    if not path.is_file():
        return (), None
    with (
        official_reader(folder, ["mapping/mol.csv.gz"], folder / "processed"),
        gzip.open(path, "rt", newline="") as file,
    ):
        rows = csv.reader(file)
        header = next(rows)
        column = header.index("smiles")
        return tuple(header[:column]), [row[column] for row in rows]


def _molecules(name: str, metric: str, targets: tuple[str, ...]) -> StoreMetadata:
    return StoreMetadata(
        name=name,
        task="classification",
        targets=targets,
        metric=metric,
        node_features=ATOM_FEATURES,
        edge_features=BOND_FEATURES,
    )


DATASETS.register("molhiv")(
    OpenGraphBenchmark(
        "ogbg-molhiv",
        split="scaffold",
        metadata=_molecules("molhiv", "roc_auc", ("HIV_active",)),
        sizes=(32_901, 4_113, 4_113),
    )
)
DATASETS.register("molpcba")(
    OpenGraphBenchmark(
        "ogbg-molpcba",
        split="scaffold",
        metadata=_molecules("molpcba", "average_precision", tuple(f"assay_{i}" for i in range(128))),
        sizes=(350_343, 43_793, 43_793),
    )
)
DATASETS.register("ppa")(
    OpenGraphBenchmark(
        "ogbg-ppa",
        split="species",
        metadata=StoreMetadata(
            name="ppa",
            task="multiclass",
            targets=("taxonomic_group",),
            metric="accuracy",
            node_features=None,
            edge_features=7,
            num_classes=37,
        ),
        sizes=(78_200, 45_100, 34_800),
    )
)
