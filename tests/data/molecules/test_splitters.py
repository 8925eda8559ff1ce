from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest

from phcgnn.data.molecules import SPLITTERS, make_folds, make_split

pytest.importorskip("rdkit")

RINGS = ["c1ccccc1", "C1CC1", "C1CCC1", "c1ccncc1", "c1ccsc1", "C1CCNCC1", "c1ccc2ccccc2c1", "c1ccoc1", "C1CCOC1"]
SMILES = ["C" * (1 + i % 5) + RINGS[min(i % 9, i % 13)] for i in range(120)]
LABELS = np.array([i % 4 == 0 for i in range(120)], dtype=np.float32)
METHODS = list(SPLITTERS)


def scaffold_of(place):
    return min(place % 9, place % 13)


def test_the_names():
    assert METHODS == ["butina", "kmeans", "random", "scaffold", "stratified"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.5, 0.0, 0.5), (1.0, 0.0, 0.0), (0.6, 0.4, 0.0)])
def test_parts_share_nothing_cover_everything_and_are_of_the_size_asked_for(method, fractions):
    split = make_split(method, smiles=SMILES, y=LABELS, fractions=fractions, seed=3)
    parts = [part.tolist() for part in split.parts().values()]
    assert sorted(place for part in parts for place in part) == list(range(120))
    sizes = np.array([len(part) for part in parts])
    if SPLITTERS[method].groups is None:
        np.testing.assert_array_equal(sizes, np.rint(np.array(fractions) * 120))
    else:
        largest = 24
        assert fractions[0] * 120 - largest <= sizes[0] <= fractions[0] * 120
        assert (np.abs(sizes - np.array(fractions) * 120) <= largest).all()
        assert sizes[np.array(fractions) == 0].sum() == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_one_split_and_another_seed_another_where_chance_has_a_say(method):
    one, same, other = (make_split(method, smiles=SMILES, y=LABELS, seed=seed) for seed in (1, 1, 2))
    assert one == same
    equal = all(np.array_equal(a, b) for a, b in zip(one.parts().values(), other.parts().values(), strict=True))
    assert equal == (method in ("scaffold", "butina"))


def test_a_seed_gives_the_same_split_in_every_release():
    assert make_split("random", y=np.zeros(10), seed=0).parts()["test"].tolist() == [5]
    assert make_split("random", y=np.zeros(10), seed=0).parts()["val"].tolist() == [0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [3, 5])
def test_each_graph_is_tested_once_and_validates_once(method, k):
    folds = make_folds(method, k, smiles=SMILES, y=LABELS, seed=3)
    assert len(folds) == k
    assert sorted(np.concatenate([fold.test for fold in folds]).tolist()) == list(range(120))
    assert sorted(np.concatenate([fold.val for fold in folds]).tolist()) == list(range(120))
    for fold in folds:
        assert len(fold.train) + len(fold.val) + len(fold.test) == 120
    if SPLITTERS[method].groups is None:
        sizes = [len(fold.test) for fold in folds]
        assert max(sizes) - min(sizes) <= 1
    assert folds == make_folds(method, k, smiles=SMILES, y=LABELS, seed=3)
    assert folds[0].method == f"{method}, fold 1 of {k}"


@pytest.mark.parametrize("splits", ["split", "folds"])
def test_a_scaffold_stays_whole(splits):
    made = [make_split("scaffold", smiles=SMILES)] if splits == "split" else make_folds("scaffold", 3, smiles=SMILES)
    for split in made:
        seen = [{scaffold_of(place) for place in part.tolist()} for part in split.parts().values()]
        assert sum(map(len, seen)) == len(RINGS)


def test_stratified_keeps_the_share_of_each_label():
    split = make_split("stratified", y=LABELS)
    for part in split.parts().values():
        assert abs(LABELS[part].sum() - len(part) / 4) <= 1
    for fold in make_folds("stratified", 5, y=LABELS):
        assert LABELS[fold.test].sum() == 6


def test_largest_scaffold_trains_and_of_equals_the_later_one_first():
    smiles = ["C1CC1", "C1CCC1", "c1ccccc1", "Cc1ccccc1"]
    split = make_split("scaffold", smiles=smiles, fractions=(0.75, 0.25, 0.0))
    assert (split.train.tolist(), split.val.tolist()) == ([1, 2, 3], [0])


@pytest.mark.parametrize("method", ["scaffold", "butina"])
def test_groups_that_leave_nothing_to_train_on_are_refused(method):
    with pytest.raises(
        ValueError, match=rf"split '{method}': nothing is left to train on.*smallest one holds 9 of the 9"
    ):
        make_split(method, smiles=["CCO"] * 9)
    nothing_wanted = make_split(method, smiles=["CCO"] * 9, fractions=(0.0, 0.0, 1.0))
    assert len(nothing_wanted.test) == 9


@pytest.mark.slow
@pytest.mark.data
def test_scaffold_is_the_official_split_of_molhiv(shared_data):
    folder = shared_data / "ogbg_molhiv"
    with gzip.open(folder / "mapping/mol.csv.gz", "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    split = make_split("scaffold", smiles=smiles)
    for part, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        official = np.loadtxt(folder / f"split/scaffold/{name}.csv.gz", dtype=np.int64)
        np.testing.assert_array_equal(split.parts()[part], official)


def test_column():
    split = make_split("column", column=["train", "Valid", "TEST", "training", "val"])
    assert [part.tolist() for part in split.parts().values()] == [[0, 3], [1, 4], [2]]
    with pytest.raises(ValueError, match="1 entries are not train, val or test; the first is 'trian'"):
        make_split("column", column=["train", "trian"])
    with pytest.raises(ValueError, match="pass column="):
        make_split("column")


@pytest.mark.parametrize("fractions", [(0.8, 0.1), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (float("nan"), 0.5, 0.5)])
def test_fractions_are_three_and_add_up(fractions):
    with pytest.raises(ValueError, match="`fractions` must be three shares that add up to 1"):
        make_split("random", y=LABELS, fractions=fractions)


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match=r"split 'scaffold': it groups molecules, pass smiles="):
        make_split("scaffold", y=LABELS)
    with pytest.raises(ValueError, match=r"split 'stratified': it balances labels, pass y="):
        make_split("stratified", smiles=SMILES)
    with pytest.raises(ValueError, match=r"pass smiles= or y="):
        make_split("random")
    with pytest.raises(ValueError, match=r"there are 120 SMILES and 3 labels"):
        make_split("random", smiles=SMILES, y=np.zeros(3))
    with pytest.raises(ValueError, match=r"unknown split 'scafold'; choose from .*Did you mean 'scaffold'"):
        make_split("scafold", smiles=SMILES)
    with pytest.raises(ValueError, match="there are no graphs to split"):
        make_split("random", smiles=[])
    with pytest.raises(ValueError, match="`k` must be at least 3"):
        make_folds("random", 2, y=LABELS)
    with pytest.raises(ValueError, match="2 graphs cannot make 3 folds"):
        make_folds("random", 3, y=np.zeros(2))
    with pytest.raises(ValueError, match="the column names 2 folds, expected k=3"):
        make_folds("column", 3, column=["a", "b"])
