from __future__ import annotations

import pytest

from phcgnn.data.molecules.scaffold import scaffold_groups

pytest.importorskip("rdkit")


def test_chirality_side_chains_and_spelling_do_not_matter_rings_and_linkers_do():
    groups = scaffold_groups(
        ["C[C@H]1CCCN1", "C[C@@H]1CCCN1", "N1CCCC1", "C1CCCC1", "c1ccccc1CCc1ccccc1", "c1ccccc1CCCc1ccccc1"]
    ).tolist()
    assert groups == [0, 0, 0, 1, 2, 3]


def test_no_ring_is_one_scaffold_and_no_molecule_one_of_its_own():
    assert scaffold_groups(["CC", "C(", "", "X", "O"]).tolist() == [0, 1, 0, 2, 0]
    assert scaffold_groups([]).tolist() == []
