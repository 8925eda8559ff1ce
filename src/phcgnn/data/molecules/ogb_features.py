"""The features of the Open Graph Benchmark: nine integers an atom, three a bond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.molecules.featurisers import FEATURISERS, SmilesError, assemble
from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles, why_unreadable

__all__ = ["OgbFeaturiser"]

_EXOTIC = frozenset("<>~$|")
"""Where a SMILES has none of these, and its atoms are ..."""

_NONMETALS = frozenset((1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53))
"""... all of these, a bond is single, aromatic, double or triple, and its order says which. (Sanitising makes some
bonds of metals dative, whatever the SMILES says.)"""


@FEATURISERS.register("ogb")
class OgbFeaturiser:
    """OGB's features, bit-equal to ``ogb.utils.smiles2graph``, without ``ogb``.

    ============== ========== ==========================================================================
    feature        categories meaning
    ============== ========== ==========================================================================
    atom           119        atomic number - 1; 118: none
    chirality      4          none, clockwise, counter-clockwise, other
    degree         12         neighbours, hydrogens included; 11: more than ten
    charge         12         formal charge + 5; 11: beyond -5 ... 5
    hydrogens      10         9: more than eight
    radicals       6          radical electrons; 5: more than four
    hybridisation  6          SP, SP2, SP3, SP3D, SP3D2, other
    aromatic       2
    in a ring      2
    bond type      5          single, double, triple, aromatic, other
    stereo         6          none, Z, E, cis, trans, any
    conjugated     2
    ============== ========== ==========================================================================

    One departure: chirality at square planar, bipyramidal and octahedral centres (``@SP``, ``@TB``, ``@OH``) is
    "other", 3. The table of the paper's models has four rows; OGB 1.3.6 numbers such a centre 4, not a row of it.

    >>> graphs, errors = OgbFeaturiser()(["CO", "not a molecule"])
    >>> graphs.x.tolist()
    [[5, 0, 4, 5, 3, 0, 2, 0, 0], [7, 0, 2, 5, 1, 0, 2, 0, 0]]
    >>> graphs.edge_index.tolist(), graphs.edge_attr.tolist()
    ([[0, 1], [1, 0]], [[0, 0, 0], [0, 0, 0]])
    >>> errors
    [SmilesError(index=1, reason='not a SMILES that RDKit can read')]
    """

    name = "ogb"
    version = 1
    node_features = (119, 4, 12, 12, 10, 6, 6, 2, 2)
    edge_features = (5, 6, 2)

    def __call__(self, smiles: Sequence[str]) -> tuple[FlatGraphs, list[SmilesError]]:
        """Return the graphs of the readable SMILES, and the unreadable ones with a reason."""
        from rdkit.Chem import Atom, Bond

        atom_getters: tuple[Callable[[Any], Any], ...] = (
            Atom.GetTotalDegree,
            Atom.GetFormalCharge,
            Atom.GetTotalNumHs,
            Atom.GetNumRadicalElectrons,
            Atom.GetHybridization,
            Atom.GetIsAromatic,
            Atom.IsInRing,
        )
        raw: list[list[int]] = [[] for _ in atom_getters]
        numbers: list[int] = []
        chirality: list[int] = []
        begin: list[int] = []
        end: list[int] = []
        kinds: list[float] = []
        stereo: list[int] = []
        conjugated: list[bool] = []
        node_counts, bond_counts, errors = [], [], []
        with quiet_rdkit():
            for index, text in enumerate(smiles):
                molecule = read_smiles(text)
                if molecule is None:
                    errors.append(SmilesError(index, why_unreadable(text)))
                    continue
                # Wrapping atoms and enumerations for Python is what costs, so atoms and bonds are wrapped once, and
                # enumerations only where the text can hold anything but the commonest value.
                atoms = list(map(molecule.GetAtomWithIdx, range(molecule.GetNumAtoms())))
                bonds = list(map(molecule.GetBondWithIdx, range(molecule.GetNumBonds())))
                elements = list(map(Atom.GetAtomicNum, atoms))
                numbers += elements
                for column, getter in zip(raw, atom_getters, strict=True):
                    column += map(getter, atoms)
                chirality += map(Atom.GetChiralTag, atoms) if "@" in text or "|" in text else [0] * len(atoms)
                begin += map(Bond.GetBeginAtomIdx, bonds)
                end += map(Bond.GetEndAtomIdx, bonds)
                conjugated += map(Bond.GetIsConjugated, bonds)
                if _EXOTIC.isdisjoint(text) and _NONMETALS.issuperset(elements):
                    kinds += map(Bond.GetBondTypeAsDouble, bonds)
                else:
                    kinds += [_ORDERS.get(str(bond.GetBondType()), 0.0) for bond in bonds]
                if "/" in text or "\\" in text or "|" in text:
                    stereo += map(Bond.GetStereo, bonds)
                else:
                    stereo += [0] * len(bonds)
                node_counts.append(len(atoms))
                bond_counts.append(len(bonds))
        number = _array(numbers)
        degree, charge, hydrogens, radicals, hybridisation, aromatic, ring = (_array(column) for column in raw)
        columns = (
            np.where((number >= 1) & (number <= 118), number - 1, 118),
            np.minimum(_array(chirality), 3),
            np.minimum(degree, 11),
            np.where(abs(charge) <= 5, charge + 5, 11),
            np.minimum(hydrogens, 9),
            np.minimum(radicals, 5),
            _table(_HYBRIDISATIONS, "HybridizationType")[hybridisation],
            aromatic,
            ring,
        )
        twice = np.fromiter((2 * kind for kind in kinds), dtype=np.int64, count=len(kinds))
        bond_columns = (_KINDS[twice], _table(_STEREO, "BondStereo")[_array(stereo)], _array(conjugated))
        return assemble(columns, node_counts, begin, end, bond_columns, bond_counts), errors


_HYBRIDISATIONS = {"SP": 0, "SP2": 1, "SP3": 2, "SP3D": 3, "SP3D2": 4}
_STEREO = {"STEREONONE": 0, "STEREOZ": 1, "STEREOE": 2, "STEREOCIS": 3, "STEREOTRANS": 4}
_ORDERS = {"SINGLE": 1.0, "AROMATIC": 1.5, "DOUBLE": 2.0, "TRIPLE": 3.0}
_KINDS = np.array([4, 4, 0, 3, 1, 4, 2], dtype=np.uint8)
"""From twice the order of a bond to OGB's number."""


def _table(names: dict[str, int], enumeration: str) -> npt.NDArray[np.uint8]:
    """Return OGB's numbers for the values of one of RDKit's enumerations; a value that OGB does not name is 5."""
    from rdkit import Chem

    values = getattr(Chem, enumeration).values
    table = np.full(max(values) + 1, 5, dtype=np.uint8)
    for value, member in values.items():
        table[value] = names.get(str(member), 5)
    return table


def _array(column: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.array(column, dtype=np.int64)
