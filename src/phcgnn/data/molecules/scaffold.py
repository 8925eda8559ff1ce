"""Bemis-Murcko scaffolds: the rings of a molecule and what links them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles

__all__ = ["scaffold_groups"]


def scaffold_groups(smiles: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a number a molecule, the same for two of them exactly if they have one scaffold.

    Chirality does not tell scaffolds apart. All molecules without a ring have one scaffold, the empty one; a SMILES
    that cannot be read is a scaffold of its own.

    >>> scaffold_groups(["c1ccccc1C", "c1ccccc1CC", "CCO", "C", "not read"]).tolist()
    [0, 0, 1, 1, 2]
    """
    from rdkit.Chem.Scaffolds import MurckoScaffold

    numbers: dict[str | int, int] = {}
    groups = np.empty(len(smiles), dtype=np.int64)
    with quiet_rdkit():
        for place, text in enumerate(smiles):
            molecule = read_smiles(text)
            key: str | int = place
            if molecule is not None:
                key = MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=False)
            groups[place] = numbers.setdefault(key, len(numbers))
    return groups
