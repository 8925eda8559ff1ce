"""NCI: the five thousand molecules that come with RDKit, labelled as ZINC's are; nothing is downloaded."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from phcgnn.data.benchmarks.base import DATASETS, Benchmark
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import StoreMetadata
from phcgnn.data.molecules.featurisers import featuriser, label
from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles
from phcgnn.data.molecules.splitters import make_split
from phcgnn.data.progress import Progress, silent
from phcgnn.errors import DataError

__all__ = ["Nci", "labelled_molecules", "penalised_logp"]

FEATURISER = "zinc-extended/1"
SIZES = {"train": 3994, "val": 498, "test": 499}
"""With RDKit 2026.09, of which 8 of the 4,999 lines are no molecules; another release may read one more or less."""

# Mean and deviation of logP, -SA and -(longest cycle beyond 6) over the data that ZINC's label was made for.
_NORMS = (
    (2.4570953396190123, 1.434324401111988),
    (-3.0525811293166134, 0.8335207024513095),
    (-0.0485696876403053, 0.2860212110245455),
)


class Nci(Benchmark):
    """NCI's first molecules as RDKit ships them, with ZINC's label; the set for a first try and for the demo.

    Features are those of :class:`~phcgnn.data.molecules.ZincExtendedFeaturiser`: ZINC's 28 atom types, and one further
    type an element for the metals and charges that ZINC does not know. The split is at random over the lines of the
    file, so that what one release of RDKit cannot read does not move the others.
    """

    def __init__(self) -> None:
        made = featuriser(FEATURISER)
        self.metadata = StoreMetadata(
            name="nci",
            task="regression",
            targets=("logP_SA_cycle_normalized",),
            metric="mae",
            node_features=made.node_features,
            edge_features=made.edge_features,
            featuriser=label(made),
        )
        self.sizes = SIZES

    def load(self, root: str | Path = "data", *, check_sizes: bool = True, progress: Progress = silent) -> GraphStore:
        """Make the store; ``root`` and ``check_sizes`` do not matter, since the molecules are RDKit's own."""
        return self.read(Path(root), progress)

    def read(self, root: Path, progress: Progress) -> GraphStore:
        """Read the file of the installed RDKit."""
        pairs = _lines()
        parts = make_split("random", smiles=[smiles for smiles, _ in pairs], seed=0).parts()
        graphs, errors = featuriser(FEATURISER)([smiles for smiles, _ in pairs])
        bad = {error.index for error in errors}
        kept = [place for place in range(len(pairs)) if place not in bad]
        labels = []
        with quiet_rdkit():
            for number, place in enumerate(kept):
                if number % 500 == 0:
                    progress("labelling", number, len(kept))
                labels.append(penalised_logp(read_smiles(pairs[place][0])))
        return GraphStore.from_flat(
            [graphs],
            metadata=self.metadata,
            y=torch.tensor(labels, dtype=torch.float32)[:, None],
            splits={name: torch.from_numpy(np.flatnonzero(np.isin(kept, part))) for name, part in parts.items()},
            ids=[pairs[place][1] for place in kept],
            smiles=[pairs[place][0] for place in kept],
        )


def labelled_molecules(count: int | None = None) -> Iterator[tuple[str, str, float]]:
    """Yield the name, SMILES and label of the first ``count`` molecules that RDKit can read.

    >>> next(labelled_molecules())
    ('1', 'CC1=CC(=O)C=CC1=O', -0.36...)
    """
    found = 0
    for smiles, name in _lines():
        if found == count:
            return
        with quiet_rdkit():
            molecule = read_smiles(smiles)
            value = None if molecule is None else penalised_logp(molecule)
        if value is not None:
            found += 1
            yield name, smiles, value


def _lines() -> list[tuple[str, str]]:
    """Return SMILES and name of every line of RDKit's file."""
    text = _rdkit_file("RDDataDir", "NCI", "first_5K.smi").read_text(encoding="utf-8")
    return [(smiles, name) for smiles, name in map(str.split, text.splitlines())]


def penalised_logp(molecule: Any) -> float:
    """Return ZINC's label: logP, less synthetic accessibility, less the atoms beyond six of the longest cycle.

    Each of the three is normalised by mean and deviation. The longest cycle is that of networkx's ``cycle_basis``,
    which depends on the order of the atoms where rings are bridged.

    >>> from rdkit import Chem
    >>> round(penalised_logp(Chem.MolFromSmiles("CCO")), 4)
    -0.2577
    """
    import networkx
    from rdkit import Chem
    from rdkit.Chem import rdMolDescriptors

    cycles = networkx.cycle_basis(networkx.Graph(Chem.GetAdjacencyMatrix(molecule)))
    longest = max(map(len, cycles), default=0)
    terms = (
        rdMolDescriptors.CalcCrippenDescriptors(molecule)[0],
        -_sa_scorer().calculateScore(molecule),
        -max(0, longest - 6),
    )
    return float(sum((term - mean) / deviation for term, (mean, deviation) in zip(terms, _NORMS, strict=True)))


@functools.cache
def _sa_scorer() -> ModuleType:
    """Return RDKit's own module for synthetic accessibility, which lies beside its package and not inside."""
    path = _rdkit_file("RDContribDir", "SA_Score", "sascorer.py")
    spec = importlib.util.spec_from_file_location("phcgnn_sascorer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rdkit_file(folder: str, *parts: str) -> Path:
    try:
        from rdkit import RDConfig
    except ImportError:
        raise ImportError("nci: its molecules are RDKit's, which is not here: pip install 'phcgnn[chem]'.") from None
    path = Path(getattr(RDConfig, folder), *parts)
    if not path.is_file():
        raise DataError(f"{path}: this RDKit comes without it; the wheel has it: pip install --force-reinstall rdkit.")
    return path


DATASETS.register("nci")(Nci())
