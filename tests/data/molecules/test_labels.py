from __future__ import annotations

import math

import numpy as np
import pytest

from phcgnn.data.molecules.labels import class_names, is_gap, parse_label, parse_number


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NaN", "nan", "null", "None", "<NA>", None, math.nan, np.nan])
def test_gaps(cell):
    assert is_gap(cell)
    assert math.isnan(parse_number(cell))
    assert math.isnan(parse_label(cell))


@pytest.mark.parametrize("cell, value", [("1", 1), (" -1.5E-3 ", -0.0015), (2, 2), (0.5, 0.5), (np.float32(0.5), 0.5)])
def test_numbers(cell, value):
    assert parse_number(cell) == value


@pytest.mark.parametrize(
    "cell, reason",
    [
        ("high", r"^not a number$"),
        ("1_000", r"^not a number$"),
        ("1,5", "decimal comma"),
        ("-1,5", "decimal comma"),
        (">10", "a bound"),
        ("≤ 3", "a bound"),
        ("inf", "not a finite number"),
        ("-Infinity", "not a finite number"),
        ("1e39", "not a finite number"),
        (True, "not a number"),
        ("5 µM", "not a number"),
    ],
)
def test_text_where_a_number_belongs(cell, reason):
    with pytest.raises(ValueError, match=reason):
        parse_number(cell)


@pytest.mark.parametrize("cell", ["1", "1.0", 1, 1.0, True, "true", "TRUE", "yes", " 1 ", np.int64(1)])
def test_yes(cell):
    assert parse_label(cell) == 1.0


@pytest.mark.parametrize("cell", ["0", "0.0", 0, 0.0, False, "false", "No", "-0", np.bool_(False)])
def test_no(cell):
    assert parse_label(cell) == 0.0


@pytest.mark.parametrize("cell", ["2", "-1", "0.5", "active", "1e-9", "0_0"])
def test_neither_yes_nor_no(cell):
    with pytest.raises(ValueError, match="not a yes or no"):
        parse_label(cell)


def test_classes_are_ordered_as_people_would():
    assert class_names(["10", 9, "2.0", "2"]) == ("2", "9", "10")
    assert class_names(["b", "10", "a "]) == ("10", "a", "b")
    assert class_names(["0.5", "1"]) == ("0.5", "1")


def test_names_that_only_look_like_one_number_stay_apart():
    assert class_names(["1_0", "10", "9"]) == ("9", "10", "1_0")
    assert class_names(["1e30", "1e0"]) == ("1", "1e30")
