"""The features of the ZINC benchmark: one type an atom, one a bond, in the Kekulé form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.molecules.featurisers import FEATURISERS, SmilesError, assemble
from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles, why_unreadable

__all__ = ["ZincExtendedFeaturiser", "ZincFeaturiser"]

_TYPES = (
    *("C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -", "S -", "I", "P"),
    *("O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +", "C H1 -", "P H1 +"),
)
"""The 28 types in their official order: element, hydrogens written inside the brackets, sign of the charge."""

Key = tuple[int, int, int]
"""Atomic number, hydrogens written inside the brackets, charge."""


def _keys() -> dict[Key, int]:
    numbers = {"C": 6, "O": 8, "N": 7, "F": 9, "S": 16, "Cl": 17, "Br": 35, "I": 53, "P": 15}
    keys = {}
    for index, name in enumerate(_TYPES):
        element, *state = name.split()
        hydrogens = next((int(part[1:]) for part in state if part[0] == "H"), 0)
        keys[numbers[element], hydrogens, ("+" in state) - ("-" in state)] = index
    return keys


_INDEX = _keys()


@FEATURISERS.register("zinc")
class ZincFeaturiser:
    """ZINC's features: 28 atom types and the bond orders 1, 2, 3 of the Kekulé form.

    A type is an element with the hydrogens that stand inside its brackets and the sign of its charge, as in the
    canonical Kekulé SMILES: ``C H1`` is a carbon whose chirality is given, ``[C@H]``; ``N H2 +`` is ``[NH2+]``. Atoms
    are in the order of that SMILES, and not of the one that was passed; bonds too. Bond type 0 does not occur.

    A molecule with any other atom type (boron, silicon, a metal, ...) or bond is an error; for those there is
    :class:`ZincExtendedFeaturiser`.

    >>> graphs, errors = ZincFeaturiser()(["C[NH3+]", "CB(O)O"])
    >>> graphs.x.ravel().tolist(), graphs.edge_attr.ravel().tolist()
    ([0, 10], [1, 1])
    >>> errors
    [SmilesError(index=1, reason="atom 'B' is not among ZINC's 28 atom types; featuriser 'zinc-extended' takes it")]
    """

    name = "zinc"
    version = 1
    node_features: tuple[int, ...] = (28,)
    edge_features: tuple[int, ...] = (4,)

    def __call__(self, smiles: Sequence[str]) -> tuple[FlatGraphs, list[SmilesError]]:
        """Return the graphs of the readable SMILES, and the unreadable ones with a reason."""
        types: list[int] = []
        begin: list[int] = []
        end: list[int] = []
        orders: list[int] = []
        node_counts, bond_counts, errors = [], [], []
        with quiet_rdkit():
            for index, text in enumerate(smiles):
                try:
                    keys, bonds = _kekule(text)
                    kinds = [_ORDERS.get(order, 0) for _, _, order in bonds]
                    found = self._types(keys, kinds)
                except ValueError as error:
                    errors.append(SmilesError(index, str(error)))
                    continue
                types += found
                begin += [bond[0] for bond in bonds]
                end += [bond[1] for bond in bonds]
                orders += kinds
                node_counts.append(len(keys))
                bond_counts.append(len(bonds))
        x, kind = (np.array(column, dtype=np.uint8) for column in (types, orders))
        return assemble([x], node_counts, begin, end, [kind], bond_counts), errors

    def _types(self, keys: list[Key], kinds: list[int]) -> list[int]:
        if 0 in kinds:
            raise ValueError("a bond is not single, double or triple; featuriser 'zinc-extended' takes it")
        found = [_INDEX.get(key, -1) for key in keys]
        if -1 in found:
            raise ValueError(
                f"atom '{_text(keys[found.index(-1)])}' is not among ZINC's 28 atom types; "
                f"featuriser 'zinc-extended' takes it"
            )
        return found


@FEATURISERS.register("zinc-extended")
class ZincExtendedFeaturiser(ZincFeaturiser):
    """ZINC's 28 atom types, and a further one for each element in any other state: no atom is refused.

    Type 28 is an atom without an element (``*``), type 28 + Z an atom of atomic number Z that is in none of the 28
    states. Bond type 0 is any bond but a single, double or triple one. A molecule that :class:`ZincFeaturiser` takes
    has the same graph here.

    >>> ZincExtendedFeaturiser()(["CB(O)O"])[0].x.ravel().tolist()
    [0, 33, 1, 1]
    """

    name = "zinc-extended"
    version = 1
    node_features = (28 + 119,)
    edge_features = (4,)

    def _types(self, keys: list[Key], kinds: list[int]) -> list[int]:
        return [_INDEX.get(key, 28 + key[0]) for key in keys]


_ORDERS = {"SINGLE": 1, "DOUBLE": 2, "TRIPLE": 3}


def _kekule(smiles: str) -> tuple[list[Key], list[tuple[int, int, str]]]:
    """Return the atoms and bonds of the canonical Kekulé SMILES, in its order."""
    from rdkit import Chem

    molecule = read_smiles(smiles)
    if molecule is None:
        raise ValueError(why_unreadable(smiles))
    Chem.Kekulize(molecule, clearAromaticFlags=True)
    molecule = Chem.MolFromSmiles(Chem.MolToSmiles(molecule), sanitize=False)
    atoms = map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms()))
    bonds = map(molecule.GetBondWithIdx, range(molecule.GetNumBonds()))
    return (
        [(atom.GetAtomicNum(), atom.GetNumExplicitHs(), atom.GetFormalCharge()) for atom in atoms],
        [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), str(bond.GetBondType())) for bond in bonds],
    )


def _text(key: Key) -> str:
    from rdkit import Chem

    number, hydrogens, charge = key
    symbol = Chem.GetPeriodicTable().GetElementSymbol(number) if number else "*"
    sign = "" if not charge else f" {'+' if charge > 0 else '-'}{abs(charge) if abs(charge) > 1 else ''}"
    return symbol + (f" H{hydrogens}" if hydrogens else "") + sign
