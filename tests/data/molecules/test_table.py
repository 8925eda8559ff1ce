from __future__ import annotations

import io
import pickle
import tracemalloc

import numpy as np
import pytest

from phcgnn.data.molecules import BadRow, InvalidRowsError, make_table, read_table, save_bad_rows
from phcgnn.data.molecules.quiet import shorten

pytest.importorskip("rdkit")


def read(text: str, **options):
    options.setdefault("target_columns", "y")
    return read_table(io.BytesIO(text.encode()), **options)


def test_targets_gaps_weights_ids_and_split():
    table = read(
        "id,smiles,a,b,w,part\nx,CCO,1,,0.5,train\ny, C ,NA,2.5,0,Valid\nz,CC,0,1,1,test\n",
        target_columns=["b", "a"],
        id_column="id",
        weight_column="w",
        split_column="part",
    )
    assert table.smiles == ["CCO", "C", "CC"]
    np.testing.assert_array_equal(table.y, np.array([[np.nan, 1], [2.5, np.nan], [1, 0]], dtype=np.float32))
    assert table.y.dtype == np.float32
    assert table.targets == ("b", "a")
    assert table.ids == ["x", "y", "z"]
    assert table.weights.tolist() == [0.5, 0, 1]
    assert table.split == ["train", "val", "test"]
    assert (table.bad, table.total, table.settled, len(table)) == ((), 3, True, 3)
    assert table.rows.tolist() == [1, 2, 3]
    assert table.lines.tolist() == [2, 3, 4]


DIRTY = (
    "\ufeffsmiles;y;w;part\r\n"
    "CCO;1;1;train\n"
    "C(;2;1;train\r\n"
    ";3;1;train\n"
    "CC;high;-1;nowhere\n"
    "\n"
    "[Na+].[Cl-];4;1;test\n"
    "CN(C)(C)(C)C;5;1;test\n"
    "[U];6;1;val\n"
    "C;7\n"
)


def test_every_bad_row_is_listed_and_not_only_the_first():
    with pytest.raises(InvalidRowsError) as caught:
        read(DIRTY, weight_column="w", split_column="part")
    bad = caught.value.bad
    assert [(row.row, row.line, row.column) for row in bad] == [
        (2, 3, "smiles"),
        (3, 4, "smiles"),
        (4, 5, "y"),
        (4, 5, "w"),
        (4, 5, "part"),
        (5, 6, None),
        (7, 8, "smiles"),
        (9, 10, None),
    ]
    assert [row.reason.split(";")[0] for row in bad] == [
        "not a SMILES that RDKit can read",
        "no SMILES",
        "not a number",
        "a weight is a number of at least 0",
        "not a part of a split: write train, val or test",
        "the row is empty",
        "Explicit valence for atom # 1 N, 5, is greater than permitted",
        "2 cells, where the header has 4",
    ]
    text = str(caught.value)
    assert text.startswith("input: 6 of 9 rows cannot be used:\n  row 2 (line 3), column 'smiles': 'C(': not a SMILES")
    assert all(str(row) in text for row in bad)
    assert "on_invalid='skip'" in text
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.bad) == (text, bad)


def test_skip_leaves_them_out_and_still_lists_them():
    table = read(DIRTY, weight_column="w", split_column="part", on_invalid="skip")
    assert table.smiles == ["CCO", "[Na+].[Cl-]", "[U]"]
    assert table.rows.tolist() == [1, 6, 8]
    assert len(table.bad) == 8
    assert table.total == len(table) + len({row.row for row in table.bad})


def test_defer_leaves_the_smiles_and_the_decision_to_others():
    table = read(DIRTY, on_invalid="defer")
    assert "C(" in table.smiles
    assert not table.settled
    assert {row.row for row in table.bad} == {3, 4, 5, 9}


def test_on_invalid_is_one_of_three():
    with pytest.raises(ValueError, match="`on_invalid` must be error, skip or defer, got 'ignore'"):
        read("smiles,y\nC,1\n", on_invalid="ignore")


@pytest.mark.parametrize("text", ["smiles,y\n", "smiles,y\n\n\n", "smiles,y"])
def test_a_table_of_nothing_but_a_header(text):
    with pytest.raises(ValueError, match="no rows, only a header"):
        read(text)


def test_a_table_of_nothing_but_bad_rows():
    assert len(read("smiles,y\nC(,1\n", on_invalid="skip")) == 0
    assert len(read("smiles,y\n,1\n", on_invalid="skip", task="multiclass")) == 0


def test_ten_megabytes_in_one_cell_are_one_short_line():
    with pytest.raises(InvalidRowsError) as caught:
        read("smiles,y\n" + "C" * 10_000_000 + ",1\nCC," + "9" * 10_000_000 + "\n")
    assert len(str(caught.value)) < 1000
    assert len(caught.value.bad) == 2
    assert str(caught.value).count("…(10,000,000 characters)'") == 2


def test_very_many_bad_rows_are_counted_in_the_text_and_kept_in_full(tmp_path):
    text = "smiles,y\n" + "C,x\n" * 1500
    with pytest.raises(InvalidRowsError, match=r"1,500 of 1,500 rows.*(\n.*)*and 500 more") as caught:
        read(text)
    assert len(caught.value.bad) == 1500
    save_bad_rows(caught.value.bad, tmp_path / "bad.csv")
    lines = (tmp_path / "bad.csv").read_text().splitlines()
    assert lines[:2] == ["row,line,column,value,reason", "1,2,y,x,not a number"]
    assert len(lines) == 1501


def test_missing_columns():
    for option in ("target_columns", "smiles_column", "weight_column", "id_column", "split_column"):
        with pytest.raises(ValueError, match=r"no column 'Y'\. Its columns are 'smiles', 'y'\. Did you mean 'y'\?"):
            read("smiles,y\nC,1\n", **{option: "Y"})


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"task": "rank"}, "`task` must be regression, classification or multiclass, got 'rank'"),
        ({"target_columns": []}, "name at least one target"),
        ({"target_columns": ["y", "y"]}, "named twice: y"),
        ({"target_columns": ["y", "smiles"], "task": "multiclass"}, "one target column, got 2"),
    ],
)
def test_bad_options(options, reason):
    with pytest.raises(ValueError, match=reason):
        read("smiles,y\nC,1\n", **options)


def test_classification():
    table = read("smiles,y\nC,1\nCC,0.0\nCCC,TRUE\nCCCC,\n", task="classification")
    np.testing.assert_array_equal(table.y[:, 0], np.array([1, 0, 1, np.nan], dtype=np.float32))
    with pytest.raises(InvalidRowsError, match="'2': not a yes or no"):
        read("smiles,y\nC,2\n", task="classification")


def test_multiclass_of_names_and_of_numbers():
    table = read("smiles,y\nC,red\nCC,blue\nCCC,red\n", task="multiclass")
    assert (table.classes, table.y.tolist(), table.y.dtype) == (("blue", "red"), [1, 0, 1], np.int64)
    assert read("smiles,y\nC,10\nCC,9\nCCC,9.0\n", task="multiclass").classes == ("9", "10")
    assert read("smiles,y\nC,red\nCC,\nCCC,blue\n", task="multiclass").y.tolist() == [1, -100, 0]


def test_lists_arrays_and_gaps():
    table = make_table(
        np.array(["C", "CC", ""]),
        {"a": np.array([1.0, np.nan, 3.0]), "b": [None, 2, 3]},
        weights=[1, 2, 3],
        ids=["x", "y", "z"],
        split=["train", "val", "test"],
    )
    np.testing.assert_array_equal(table.y, np.array([[1, np.nan], [np.nan, 2], [3, 3]], dtype=np.float32))
    assert table.smiles == ["C", "CC", ""]
    assert (table.ids, table.split) == (["x", "y", "z"], ["train", "val", "test"])
    assert table.rows.tolist() == [1, 2, 3]


def test_lists_are_checked_too():
    with pytest.raises(ValueError, match=r"must be of one length, got .*'smiles': 2"):
        make_table(["C", "CC"], {"y": [1]})
    with pytest.raises(InvalidRowsError) as caught:
        make_table(["C", None, 5, "C("], {"y": ["x", 1, 1, 1]}, weights=[None, 1, 1, 1])
    assert [(row.row, row.column) for row in caught.value.bad] == [
        (1, "y"),
        (1, "weights"),
        (2, "smiles"),
        (3, "smiles"),
        (4, "smiles"),
    ]


def test_pandas_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"smiles": ["C", "CC"], "y": [True, None]})
    table = make_table(frame["smiles"], {"y": frame["y"]}, task="classification")
    assert table.smiles == ["C", "CC"]
    assert table.y[0, 0] == 1
    assert np.isnan(table.y[1, 0])


@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
def test_pandas_own_gap(task):
    """NA of a nullable column refuses to be compared with anything, itself included."""
    pandas = pytest.importorskip("pandas")
    labels = pandas.array([1, None, 0], dtype="Int64")
    table = make_table(["C", "CC", "CCC"], {"y": labels}, task=task)
    assert table.y.flatten().tolist()[::2] == [1, 0]
    assert np.isnan(table.y[1]) if task != "multiclass" else table.y[1] == -100


def test_take_keeps_all_columns_in_step():
    table = make_table(["C", "CC", "CCC"], {"y": [1, 2, 3]}, ids=["a", "b", "c"], weights=[1, 2, 3], split=["test"] * 3)
    part = table.take(np.array([2, 0]))
    assert (part.smiles, part.ids, part.rows.tolist()) == (["CCC", "C"], ["c", "a"], [3, 1])
    assert (part.y.ravel().tolist(), part.weights.tolist(), part.split) == ([3, 1], [3, 1], ["test", "test"])
    assert repr(part) == "MoleculeTable('table', 2 molecules, regression: y; 0 bad)"


@pytest.mark.data
@pytest.mark.parametrize(
    "name, rows, bad",
    [("esol.csv", 1128, 0), ("bbbp.csv", 2050, 11), ("tox21.csv.gz", 8014, None)],
)
def test_the_tables_of_moleculenet(shared_data, name, rows, bad):
    targets = {
        "esol.csv": ["measured log solubility in mols per litre"],
        "bbbp.csv": ["p_np"],
        "tox21.csv.gz": ["NR-AR", "SR-p53"],
    }[name]
    task = "regression" if name == "esol.csv" else "classification"
    table = read_table(shared_data / "csv" / name, target_columns=targets, task=task, on_invalid="skip")
    assert table.total == rows
    assert len(table) + len({row.row for row in table.bad}) == rows
    if bad is not None:
        assert len(table.bad) == bad


def test_a_bad_row_reads_like_a_sentence():
    assert str(BadRow(2, None, None, "", "the row is empty")) == "row 2: '': the row is empty"
    assert shorten("x" * 60) == "x" * 60
    assert shorten("x" * 61) == "x" * 44 + "…(61 characters)"
    assert shorten(shorten("x" * 10**7)) == shorten("x" * 10**7)  # a second time, the length would be another


def test_a_row_costs_its_smiles_and_its_numbers():
    rows = 20_000
    data = b"smiles,a,b,w\n" + b"".join(b"%s,%d.5,,2\n" % (b"C" * (20 + i % 20), i) for i in range(rows))
    tracemalloc.start()
    table = read_table(io.BytesIO(data), target_columns=["a", "b"], weight_column="w", on_invalid="defer")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == rows
    text = 49 + 30 + 8  # a str of 30 characters, and the place in a list that holds it
    numbers = 2 * (8 + 4) + 2 * 2 * 8 + (8 + 4)  # targets as read and as kept, row and line twice, the weight
    assert peak / rows < 1.5 * (text + numbers)
