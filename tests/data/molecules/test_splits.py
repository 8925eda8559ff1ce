from __future__ import annotations

import json

import numpy as np
import pytest

from phcgnn.data.molecules import Split, load_folds, load_split, make_folds, save_folds

SPLIT = Split([3, 0], [1], [5], total=6, method="random", seed=7)


def test_numbers_are_sorted_and_kept_as_int64():
    assert SPLIT.train.tolist() == [0, 3]
    assert {part.dtype for part in SPLIT.parts().values()} == {np.dtype(np.int64)}
    assert list(SPLIT.parts()) == ["train", "val", "test"]
    assert repr(SPLIT) == "Split(train=2, val=1, test=1, method='random', seed=7)"
    assert len({SPLIT, Split([0, 3], [1], [5], total=6, method="random", seed=7)}) == 1
    assert Split([0, 3], [1], [4], total=6, method="random", seed=7) != SPLIT


@pytest.mark.parametrize(
    "parts, reason",
    [
        (([0], [0], []), "1 graphs of `val` are in `train` too, the first is 0"),
        (([0], [1], [1]), "1 graphs of `test` are in `val` too, the first is 1"),
        (([0, 0], [1], [2]), "`train` has 1 numbers twice, the first is 0"),
        (([0], [1], [6]), r"`test` has 1 numbers outside 0 \.\.\. 5, the first is 6"),
        (([-1], [1], [2]), r"`train` has 1 numbers outside 0 \.\.\. 5, the first is -1"),
        (([0.5], [1], [2]), "`train` must be a list of whole numbers"),
        (([True], [1], [2]), "`train` must be a list of whole numbers"),
        (([[0]], [1], [2]), "`train` must be a list of whole numbers"),
    ],
)
def test_what_is_no_split(parts, reason):
    with pytest.raises(ValueError, match=reason):
        Split(*parts, total=6)


def test_total_is_a_number():
    with pytest.raises(ValueError, match="`total` must be a number of graphs, got -1"):
        Split([], [], [], total=-1)
    assert Split([], [], [], total=0).train.shape == (0,)


@pytest.mark.parametrize("total", [6, None])
def test_json_round_trip(tmp_path, total):
    path = tmp_path / "splits.json"
    SPLIT.save(path)
    assert load_split(path, total=total) == SPLIT
    assert json.loads(path.read_text())["schema"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["splits.json"]


def test_folds_round_trip(tmp_path):
    folds = make_folds("random", 4, y=np.zeros(10))
    save_folds(folds, tmp_path / "folds.json")
    assert load_folds(tmp_path / "folds.json", total=10) == folds
    with pytest.raises(ValueError, match="it is a cross-validation, take one of its folds"):
        load_split(tmp_path / "folds.json")
    SPLIT.save(tmp_path / "one.json")
    with pytest.raises(ValueError, match="this is one split and no cross-validation"):
        load_folds(tmp_path / "one.json")


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "own.json"
    path.write_text('{"train": [0], "valid": [2], "test": [1]}')
    split = load_split(path, total=5)
    assert (split.val.tolist(), split.total, split.method) == ([2], 5, "given")
    assert load_split(path).total == 3


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "not a JSON file"),
        ("[1]", r"an object with train, val and test, got \[1\]"),
        ('{"train": [0], "test": [1]}', "there is no val in it"),
        ('{"train": [0], "val": ["1"], "test": []}', r"`val` must be a list of whole numbers"),
        ('{"train": [0], "val": [true], "test": []}', r"`val` must be a list of whole numbers"),
        ('{"train": 3, "val": [1], "test": []}', r"`train` must be a list of whole numbers"),
        ('{"train": [0], "val": [0], "test": []}', r"1 graphs of `val` are in `train` too"),
        ('{"train": [9], "val": [0], "test": []}', r"outside 0 \.\.\. 4"),
        ('{"total": 4, "train": [], "val": [], "test": []}', "this splits 4 graphs, and there are 5"),
        ('{"schema": 2, "train": [], "val": [], "test": []}', "schema 2 is not known"),
    ],
)
def test_a_file_that_is_no_split_is_refused_by_name(tmp_path, text, reason):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"bad\.json: .*{reason}"):
        load_split(path, total=5)
