from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest

from phcgnn.data.molecules import ZincExtendedFeaturiser, ZincFeaturiser

pytest.importorskip("rdkit")


@pytest.mark.data
@pytest.mark.parametrize("kind", [ZincFeaturiser, ZincExtendedFeaturiser])
def test_equals_the_benchmark_molecule_by_molecule(shared_data, kind):
    with gzip.open(shared_data / "ZINC/zinc12k.csv.gz", "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    official = np.load(shared_data / "ZINC/zinc12k.npz")
    graphs, errors = kind()(smiles)
    assert errors == []
    assert len(graphs) == 12_000
    np.testing.assert_array_equal(graphs.x[:, 0], official["atom"])
    np.testing.assert_array_equal(graphs.node_counts, official["num_atoms"])
    np.testing.assert_array_equal(graphs.edge_counts, 2 * official["num_bonds"].astype(int))
    np.testing.assert_array_equal(graphs.edge_index.T[::2], official["bond"])
    np.testing.assert_array_equal(graphs.edge_index.T[1::2], official["bond"][:, ::-1])
    np.testing.assert_array_equal(graphs.edge_attr[::2, 0], official["bond_type"])
    np.testing.assert_array_equal(graphs.edge_attr[1::2, 0], official["bond_type"])


def test_spelling_of_a_smiles_does_not_matter():
    first, _ = ZincFeaturiser()(["OCC"])
    second, _ = ZincFeaturiser()(["CCO"])
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.edge_index, second.edge_index)


@pytest.mark.parametrize(
    "smiles, reason",
    [
        ("CB(O)O", "atom 'B' is not"),
        ("[Cu+2]", r"atom 'Cu \+2' is not"),
        ("C[SiH2]C", "atom 'Si H2' is not"),
        ("[CH2]C", "atom 'C H2' is not"),
        ("*C", r"atom '\*' is not"),
        ("C$C", "a bond is not single"),
    ],
)
def test_what_zinc_does_not_know_is_an_error_that_names_the_way_out(smiles, reason):
    import re

    graphs, errors = ZincFeaturiser()([smiles])
    assert len(graphs) == 0
    assert re.search(reason, errors[0].reason)
    assert "zinc-extended" in errors[0].reason
    extended, errors = ZincExtendedFeaturiser()([smiles])
    assert errors == []
    assert len(extended) == 1


def test_extended_types_lie_behind_the_28_one_an_element():
    graphs, _ = ZincExtendedFeaturiser()(["[Cu+2]", "[Cu]", "*", "[O-2]"])
    assert graphs.x.ravel().tolist() == [28 + 29, 28 + 29, 28, 28 + 8]
    quadruple, _ = ZincExtendedFeaturiser()(["C$C"])
    assert sorted(quadruple.edge_attr.ravel().tolist()) == [0, 0]
