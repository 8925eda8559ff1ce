from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest

from phcgnn.data.molecules import OgbFeaturiser

pytest.importorskip("rdkit")

ODD = [
    "C[C@H](N)c1cc[nH]c1/C=C/O",
    r"F/C=C\Cl",
    "[Na+].[Cl-]",
    "CC->[Fe]",
    "C~C",
    "C$C",
    "*",
    "*c1ccccc1",
    "[H]",
    "[H][H]",
    "[2H]C",
    "[CH3]",
    "[O][O]",
    "[Fe+6]",
    "[U]",
    "[C-6]",
    "F[S](F)(F)(F)(F)F",
    "F[P](F)(F)(F)F",
    "O=[Xe](=O)(=O)=O",
    "[Lv]",
    "C1CC2CCC1C2",
    "OC(=O)C1=CC=CC=C1",
    "CCO |$_AV:a;b;c$|",
    "[BH2-]1[H]B[H]1",
]


def oracle(smiles):
    from ogb.utils import smiles2graph

    graphs = [smiles2graph(text) for text in smiles]
    return (
        np.concatenate([graph["node_feat"].reshape(-1, 9) for graph in graphs]),
        np.concatenate([graph["edge_index"] for graph in graphs], axis=1),
        np.concatenate([graph["edge_feat"] for graph in graphs]),
        [graph["num_nodes"] for graph in graphs],
    )


def assert_equals_oracle(smiles):
    graphs, errors = OgbFeaturiser()(smiles)
    refused = {error.index for error in errors}
    x, edge_index, edge_attr, counts = oracle([text for i, text in enumerate(smiles) if i not in refused])
    np.testing.assert_array_equal(graphs.x, x)
    np.testing.assert_array_equal(graphs.edge_index, edge_index)
    np.testing.assert_array_equal(graphs.edge_attr, edge_attr)
    np.testing.assert_array_equal(graphs.node_counts, counts)
    return len(errors)


def test_equals_ogb_on_odd_molecules():
    pytest.importorskip("ogb")
    from rdkit import Chem, rdBase

    block = rdBase.BlockLogs()
    readable = [text for text in ODD if Chem.MolFromSmiles(text) is not None]
    assert len(readable) >= len(ODD) - 2
    assert assert_equals_oracle([*readable, ""]) == 0
    del block


@pytest.mark.data
def test_equals_ogb_on_molecules_of_nci():
    pytest.importorskip("ogb")
    from pathlib import Path

    from rdkit import RDConfig, rdBase

    block = rdBase.BlockLogs()
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    assert assert_equals_oracle([line.split()[0] for line in lines[:1500]]) == 0
    del block


@pytest.mark.slow
@pytest.mark.data
def test_equals_ogb_on_all_of_molhiv(shared_data):
    pytest.importorskip("ogb")
    from rdkit import rdBase

    with gzip.open(shared_data / "ogbg_molhiv/mapping/mol.csv.gz", "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    block = rdBase.BlockLogs()
    assert assert_equals_oracle(smiles) == 7
    del block


@pytest.mark.parametrize("centre", ["SP1", "TB1", "OH1"])
def test_chirality_beyond_tetrahedral_is_other(centre):
    ligands = {"SP1": "(F)(Cl)Br", "TB1": "(F)(Cl)(Br)I", "OH1": "(F)(Cl)(Br)(I)N"}[centre]
    graphs, errors = OgbFeaturiser()([f"C[Fe@{centre}]{ligands}"])
    assert errors == []
    assert graphs.x[1, 1] == 3


def test_needs_no_ogb(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ogb", None)
    assert len(OgbFeaturiser()(["CCO"])[0]) == 1
