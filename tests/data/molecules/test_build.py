from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from phcgnn.data import GraphStore
from phcgnn.data.molecules import (
    InvalidRowsError,
    Split,
    concatenate,
    featuriser,
    make_split,
    make_table,
    prepare_table,
    read_table,
    table_to_store,
)

pytest.importorskip("rdkit")

DIRTY = "smiles,y,id\nCCO,1,a\nC(,0,b\nOCC,0,c\nCC,maybe,d\nC,1,e\nCCC,0,f\nCC(C)(C)(C)C,1,g\n"


def deferred(text: str = DIRTY, task: str = "classification", **options):
    return read_table(io.BytesIO(text.encode()), target_columns="y", task=task, on_invalid="defer", **options)


def test_every_kind_of_bad_row_is_in_one_list():
    with pytest.raises(InvalidRowsError) as caught:
        prepare_table(deferred())
    assert [(row.row, row.line, row.column, row.value) for row in caught.value.bad] == [
        (1, 2, "y", "1"),
        (2, 3, "smiles", "C("),
        (3, 4, "y", "0"),
        (4, 5, "y", "maybe"),
        (7, 8, "smiles", "CC(C)(C)(C)C"),
    ]
    assert "the same molecule as row 3, labelled differently" in str(caught.value)
    assert "5 of 7 rows cannot be used" in str(caught.value)


def test_skip_goes_on_without_them_and_keeps_all_columns_in_step():
    prepared = prepare_table(deferred(id_column="id"), on_invalid="skip")
    assert prepared.table.ids == ["e", "f"]
    assert len(prepared.table.bad) == 5
    store = prepared.store(splits=Split([0], [], [1], total=2))
    assert (list(store.ids), list(store.smiles)) == (["e", "f"], ["C", "CCC"])
    assert store.y.tolist() == [[1.0], [0.0]]
    assert store[1].num_nodes == 3
    assert store.splits["test"].tolist() == [1]


@pytest.mark.parametrize("repeats, kept", [("keep", 4), ("bad", 2), (None, 2)])
def test_contradictions_can_be_kept(repeats, kept):
    prepared = prepare_table(deferred(), on_invalid="skip", repeats=repeats)
    assert len(prepared.table) == sum(map(len, prepared.graphs)) == kept
    assert len(prepared.repeats) == (repeats == "keep")


def test_repeated_measurements_are_no_contradiction_but_are_listed():
    table = make_table(["CCO", "OCC", "C"], {"y": [1.0, 1.5, 2.0]})
    prepared = prepare_table(table)
    assert len(prepared.table) == 3
    assert [one.places for one in prepared.repeats] == [(0, 1)]
    with pytest.raises(InvalidRowsError, match="the same molecule as row 2"):
        prepare_table(table, repeats="bad")


def test_what_was_agreed_to_when_reading_is_not_asked_again():
    table = make_table(["CCO", "C("], {"y": [1, 2]}, on_invalid="skip")
    prepared = prepare_table(table, on_invalid="error")
    assert len(prepared.table) == 1
    assert len(prepared.table.bad) == 1


def test_multiclass_contradictions_name_the_class_and_gaps_are_none():
    text = "smiles,y\nCCO,red\nOCC,blue\nC,red\nC,\n"
    with pytest.raises(InvalidRowsError) as caught:
        table_to_store(deferred(text, "multiclass"))
    assert [row.value for row in caught.value.bad] == ["red", "blue"]
    store = table_to_store(deferred(text, "multiclass"), on_invalid="skip")
    assert store.y.tolist() == [1, -100]
    assert store.metadata.num_classes == 2


def test_metadata_records_what_prediction_needs():
    table = make_table(["CCO", "C"], {"a": [1, 2], "b": [3, None]}, weights=[1, 0.5], split=["train", "test"])
    store = table_to_store(table, by="zinc", metric="rmse", name="solubility")
    assert store.metadata.featuriser == "zinc/1"
    assert (store.metadata.name, store.metadata.metric) == ("solubility", "rmse")
    assert (store.metadata.targets, store.metadata.task) == (("a", "b"), "regression")
    assert (store.metadata.node_features, store.metadata.edge_features) == ((28,), (4,))
    assert store.weights.tolist() == [1.0, 0.5]
    assert {name: part.tolist() for name, part in store.splits.items()} == {"train": [0], "val": [], "test": [1]}
    assert table_to_store(table).metadata.metric == "mae"


def test_unknown_atoms_of_zinc_are_bad_rows():
    with pytest.raises(InvalidRowsError, match="atom 'B' is not among ZINC's 28"):
        table_to_store(make_table(["CB(O)O"], {"y": [1]}), by="zinc")
    assert len(table_to_store(make_table(["CB(O)O"], {"y": [1]}), by="zinc-extended")) == 1


def test_a_table_of_which_nothing_is_left_is_refused_with_all_its_rows():
    table = make_table(["C(", "CCO", "OCC"], {"y": [1, 1, 0]}, task="classification", on_invalid="defer")
    with pytest.raises(InvalidRowsError, match=r"3 of 3 rows cannot be used(?s:.*)No row is left to use") as caught:
        prepare_table(table, on_invalid="skip")
    assert [row.row for row in caught.value.bad] == [1, 2, 3]


def test_salts_metals_one_atom_and_none():
    smiles = ["[Na+].[Cl-]", "[Fe]", "C", "", "CC(=O)[O-].[Pt+2]"]
    store = table_to_store(make_table(smiles, {"y": range(5)}))
    assert [store[i].num_nodes for i in range(5)] == [2, 1, 1, 0, 5]


def test_a_split_of_another_table_is_refused():
    table = make_table(["CCO", "C"], {"y": [1, 2]})
    with pytest.raises(ValueError, match="the split is of 3 graphs, and 2 rows are left"):
        table_to_store(table, splits=Split([0], [1], [2], total=3))


@pytest.mark.parametrize("options", [{"on_invalid": "defer"}, {"repeats": "drop"}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=r"must be (error or skip, got 'defer'|bad or keep, got 'drop')"):
        prepare_table(make_table(["C"], {"y": [1]}), **options)


def test_progress_is_told():
    heard = []
    prepare_table(make_table(["C"] * 3, {"y": [1] * 3}), progress=lambda what, done=0, total=None: heard.append(done))
    assert heard == [3]


TABLES = [
    pytest.param("esol.csv", "regression", 1128, 1128, id="esol"),
    pytest.param("bbbp.csv", "classification", 2050, 2019, id="bbbp"),
    pytest.param("tox21.csv.gz", "classification", 8014, 7907, id="tox21"),
    pytest.param("muv.csv.gz", "classification", 93127, 93127, id="muv", marks=pytest.mark.slow),
]


@pytest.mark.data
@pytest.mark.parametrize("file, task, rows, kept", TABLES)
def test_moleculenet_as_stores(shared_data, tmp_path, file, task, rows, kept):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(shared_data / "csv" / file)
    targets = {
        "esol.csv": ["measured log solubility in mols per litre"],
        "bbbp.csv": ["p_np"],
    }.get(file, [c for c in frame.columns if c not in ("mol_id", "smiles")])
    table = read_table(shared_data / "csv" / file, target_columns=targets, task=task, on_invalid="defer")
    prepared = prepare_table(table, on_invalid="skip")
    assert table.total == len(frame) == rows
    assert len(prepared.table) + len({row.row for row in prepared.table.bad}) == rows
    assert len(prepared.table) == kept
    store = prepared.store(splits=make_split("random", y=prepared.table.y))
    store.save(tmp_path / "store.phg")
    again = GraphStore.load(tmp_path / "store.phg")
    assert again.metadata == store.metadata
    assert again.metadata.name == file.partition(".")[0]

    places = prepared.table.rows - 1
    expected = frame[targets].to_numpy(dtype=np.float32)[places]
    torch.testing.assert_close(again.y, torch.from_numpy(expected), equal_nan=True)
    assert list(again.smiles) == [text.strip() for text in frame["smiles"].to_numpy()[places]]
    graphs = concatenate(prepared.graphs)
    np.testing.assert_array_equal(again.x.numpy(), graphs.x)
    np.testing.assert_array_equal(np.diff(again.edge_ptr.numpy()), graphs.edge_counts)
    for place in (0, len(store) // 2, len(store) - 1):
        alone, _ = featuriser("ogb")([again.smiles[place]])
        np.testing.assert_array_equal(again[place].x.numpy(), alone.x)
    assert sum(len(part) for part in again.splits.values()) == kept
