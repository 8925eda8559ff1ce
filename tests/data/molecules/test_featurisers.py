from __future__ import annotations

import pickle

import numpy as np
import pytest

from phcgnn.data.molecules import FEATURISERS, Featuriser, OgbFeaturiser, concatenate, featuriser, label

pytest.importorskip("rdkit")


@pytest.mark.parametrize("name", list(FEATURISERS))
def test_every_name_is_a_featuriser_that_can_be_sent_to_another_process(name):
    made = featuriser(name)
    assert isinstance(made, Featuriser)
    assert label(made) == f"{name}/{made.version}"
    assert label(featuriser(label(made))) == label(made)
    assert label(pickle.loads(pickle.dumps(made))) == label(made)
    assert featuriser(made) is made


@pytest.mark.parametrize("name", list(FEATURISERS))
def test_values_stay_below_the_declared_categories(name):
    made = featuriser(name)
    graphs, _ = made(
        ["C[C@H](N)c1cc[nH]c1/C=C/O", "[Na+].[Cl-]", "CC->[Fe]", "C~C", "C$C", "*", "[H][H]", "C[Pt@SP1](F)(Cl)Br"]
    )
    assert len(graphs) >= 1
    assert graphs.x.shape[1] == len(made.node_features)
    assert graphs.edge_attr.shape[1] == len(made.edge_features)
    assert (graphs.x < np.array(made.node_features)).all()
    assert (graphs.edge_attr < np.array(made.edge_features)).all()


@pytest.mark.parametrize("name", list(FEATURISERS))
def test_no_atom_one_atom_and_no_molecule_at_all_are_legal(name):
    made = featuriser(name)
    graphs, errors = made(["", "C", "CC"])
    assert errors == []
    assert graphs.node_counts.tolist() == [0, 1, 2]
    assert graphs.edge_counts.tolist() == [0, 0, 2]
    none, errors = made([])
    assert len(none) == 0
    assert errors == []
    assert none.x.shape == (0, len(made.node_features))
    assert none.edge_index.shape == (2, 0)
    assert none.edge_attr.shape == (0, len(made.edge_features))


@pytest.mark.parametrize("name", list(FEATURISERS))
def test_an_error_leaves_its_neighbours_alone(name):
    made = featuriser(name)
    graphs, errors = made(["CCO", "C(", "CN(C)(C)(C)C", "CCN"])
    assert [error.index for error in errors] == [1, 2]
    assert "not a SMILES" in errors[0].reason
    assert "valence" in errors[1].reason
    alone, _ = made(["CCO", "CCN"])
    for field in ("x", "node_counts", "edge_index", "edge_attr", "edge_counts"):
        np.testing.assert_array_equal(getattr(graphs, field), getattr(alone, field))


@pytest.mark.parametrize("name", list(FEATURISERS))
def test_parts_joined_are_the_whole(name):
    made = featuriser(name)
    smiles = ["CCO", "c1ccccc1", "", "C"]
    whole, _ = made(smiles)
    joined = concatenate(made([text])[0] for text in smiles)
    for field in ("x", "node_counts", "edge_index", "edge_attr", "edge_counts"):
        np.testing.assert_array_equal(getattr(joined, field), getattr(whole, field))


def test_nothing_is_written_to_the_terminal_and_the_log_is_left_as_it_was(capfd):
    from rdkit import Chem

    featuriser("ogb")(["C("])
    assert capfd.readouterr() == ("", "")
    Chem.MolFromSmiles("C(")
    assert "SMILES Parse Error" in capfd.readouterr().err


HOSTILE = [
    *("[CH99999]", "[99999999999C]", "C%(99999999999)C", "(" * 9000, "[" * 9000, "\ud800", "C\0C", "\x7f", "%", "{}"),
    *("C1CC", "C=#C", "[Zz]", "C->C", "|$$|", "C |", "-", "/", "C\\"),
]


@pytest.mark.parametrize("name", list(FEATURISERS))
def test_no_text_whatsoever_stops_the_others(name):
    graphs, errors = featuriser(name)([*HOSTILE, "CC"])
    assert graphs.node_counts[-1] == 2
    assert len(graphs) + len(errors) == len(HOSTILE) + 1
    assert {error.index for error in errors} >= {0, 1, 2, 3, 4, 5}
    assert all(error.reason for error in errors)


def test_a_text_of_ten_million_characters_is_an_error_of_one_line():
    _, errors = featuriser("ogb")(["C" * 10_000_000])
    assert errors[0].reason == "10,000,000 characters are more than the 20,000 tried as one SMILES"


def test_unknown_names_and_versions_name_what_there_is():
    with pytest.raises(ValueError, match=r"unknown featuriser 'ogbb'; choose from .*ogb.*Did you mean"):
        featuriser("ogbb")
    with pytest.raises(ValueError, match=r"'ogb/9' is not in this release, which has 'ogb/1'"):
        featuriser("ogb/9")
    with pytest.raises(TypeError, match=r"a featuriser is a name or an object"):
        featuriser(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a featuriser is a name or an object"):
        featuriser(OgbFeaturiser)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing to join"):
        concatenate([])
