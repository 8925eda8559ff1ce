from __future__ import annotations

import json

import pytest
import torch

from phcgnn.data.sources import DataSettings, open_data

pytest.importorskip("rdkit")

ROWS = ["C1CC,0", *(f"{'C' * i}O,{i}" for i in range(1, 11)), "CCN,high"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "alcohols.csv"
    path.write_text("smiles,y\n" + "\n".join(ROWS) + "\n")
    return path


def settings(table, **changes) -> DataSettings:
    return DataSettings(**{"path": str(table), "target_columns": ("y",), "on_invalid": "skip", **changes})


def test_a_table_its_bad_rows_and_its_split(table):
    store, bad = open_data(settings(table, split="random", fractions=(0.5, 0.3, 0.2)))
    assert [row.row for row in bad] == [1, 12]
    assert {name: len(part) for name, part in store.splits.items()} == {"train": 5, "val": 3, "test": 2}
    with pytest.raises(ValueError, match="2 of 12 rows cannot be used"):
        open_data(settings(table, on_invalid="error"))


def test_a_featuriser_is_named_as_models_record_it(table):
    assert open_data(settings(table, featuriser="ogb/1", split="random")).store.metadata.featuriser == "ogb/1"
    with pytest.raises(ValueError, match="featuriser 'ogb/2' is not in this release"):
        settings(table, featuriser="ogb/2").require_source()


def test_a_table_that_is_not_split(table):
    store, _ = open_data(settings(table), split=False)
    assert store.splits["all"].tolist() == list(range(10))


@pytest.mark.parametrize("total", [None, 12])
def test_a_split_file_counts_the_rows_of_the_table(table, tmp_path, total):
    """A bad row in front must not shift the others into another part."""
    path = tmp_path / "own.json"
    document = {"train": [0, 1, 2, 11], "val": [3, 4], "test": [9, 10]}
    path.write_text(json.dumps(document if total is None else {**document, "total": total}))
    store, _ = open_data(settings(table, split_file=str(path)))
    found = {name: store.y[part].flatten().tolist() for name, part in store.splits.items()}
    assert found == {"train": [1.0, 2.0], "val": [3.0, 4.0], "test": [9.0, 10.0]}


def test_a_split_file_that_a_run_wrote_counts_the_rows_that_were_left(table, tmp_path):
    path = tmp_path / "splits.json"
    path.write_text(json.dumps({"schema": 1, "total": 10, "train": [0, 1], "val": [2], "test": [9]}))
    store, _ = open_data(settings(table, split_file=str(path)))
    assert store.y[store.splits["test"]].flatten().tolist() == [10.0]
    path.write_text(json.dumps({"schema": 1, "total": 11, "train": [0, 1], "val": [2], "test": [9]}))
    with pytest.raises(ValueError, match="this splits 11 graphs, and there are 12"):
        open_data(settings(table, split_file=str(path)))


def test_a_stored_file_and_a_benchmark(table, tmp_path):
    store, _ = open_data(settings(table), split=False)
    store.save(tmp_path / "a.phg")
    again, bad = open_data(DataSettings(name=str(tmp_path / "a.phg")))
    assert torch.equal(again.y, store.y)
    assert bad == ()
    with pytest.raises(ValueError, match="unknown data set 'zink'"):
        open_data(DataSettings(name="zink"))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"name": "zinc", "path": "a.csv"}, "both say where data are"),
        ({"name": "zinc", "split_file": "a.json", "id_column": "b"}, "`id_column`, `split_file` would do nothing"),
        ({"name": "zinc", "fractions": (0.5, 0.3, 0.2)}, "`fractions` would do nothing, since zinc comes with its own"),
        ({"path": "a.csv", "split_file": "a.json", "split_column": "b"}, "both split the data"),
        ({"path": "a.csv", "fractions": (0.8, 0.1)}, "`fractions` must be three shares"),
    ],
)
def test_settings_that_contradict_each_other(values, message):
    with pytest.raises(ValueError, match=message):
        DataSettings(**values)


def test_settings_that_lack_something():
    with pytest.raises(ValueError, match="no data: give --data NAME"):
        open_data(DataSettings())
    with pytest.raises(ValueError, match="a table needs --target-columns"):
        open_data(DataSettings(path="a.csv"))
