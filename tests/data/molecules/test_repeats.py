from __future__ import annotations

import numpy as np
import pytest

from phcgnn.data.molecules import Contradiction, contradictions, featuriser
from phcgnn.data.molecules.repeats import graph_keys

pytest.importorskip("rdkit")

SMILES = ["C[C@H](N)C(=O)O", "OCC", "c1ccccc1O", "N[C@@H](C)C(O)=O", "C[C@@H](N)C(=O)O", "C1=CC=CC=C1O", "CCO"]
"""0 and 3 are one molecule, 4 its mirror image; 1 and 6; 2 and 5."""


def find(y, smiles=SMILES, by="ogb", **options):
    found = contradictions(smiles, np.array(y), featuriser(by)(smiles)[0], **options)
    return [(one.places, one.targets) for one in found]


@pytest.mark.parametrize("by", ["ogb", "zinc", "zinc-extended"])
def test_spelling_does_not_hide_a_molecule_and_a_mirror_image_is_another(by):
    assert find([0, 1, 2, 9, 0, 2, 1], by=by) == [((0, 3), (0,))]
    assert find([0, 1, 2, 0, 9, 2, 1], by=by) == []
    assert find([0, 8, 2, 9, 0, 7, 1], by=by) == [((0, 3), (0,)), ((1, 6), (0,)), ((2, 5), (0,))]


def test_runs_of_graphs_are_one_table():
    smiles, made = ["CCO", "C", "OCC", "CO"], featuriser("ogb")
    runs = [made(smiles[:2])[0], made(smiles[2:])[0]]
    found = contradictions(smiles, np.array([[1.0], [0.0], [0.0], [1.0]]), runs)
    assert found == [Contradiction((0, 2), (0,))]


def test_a_gap_contradicts_nothing():
    gap = np.nan
    y = [[0, 1], [1, gap], [gap, gap], [gap, 0], [0, 0], [1, 1], [1, 1]]
    assert find(y) == [((0, 3), (1,))]
    assert find([0, -100, 2, 0, 0, 2, 1], gap=-100) == []


def test_three_of_a_kind():
    assert find([1, 1, 2], ["CCO", "OCC", "C(O)C"]) == [((0, 1, 2), (0,))]


def test_keys_do_not_depend_on_the_order_of_atoms_and_tell_isomers_apart():
    graphs, _ = featuriser("ogb")(["CCCO", "OCCC", "CC(C)O", "CCC", "", "C", "CC", ""])
    keys = graph_keys(graphs).tolist()
    assert keys[0] == keys[1]
    assert keys[4] == keys[7]
    assert len(set(keys)) == 6


def test_nothing_is_parsed_where_nothing_contradicts(monkeypatch):
    from phcgnn.data.molecules import repeats

    monkeypatch.setattr(repeats, "read_smiles", None)
    assert find([0, 1, 2, 0, 0, 2, 1]) == []
