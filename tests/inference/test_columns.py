from __future__ import annotations

import csv
import io

import pytest

from phcgnn.inference import Predictor
from phcgnn.inference.columns import Columns, csv_line


@pytest.mark.parametrize(
    "task, own, added",
    [
        ("regression", ["smiles"], ["logS", "logP", "error"]),
        ("classification", ["smiles"], ["active", "error"]),
        ("multiclass", ["smiles"], ["kind", "kind_acid", "kind_base", "kind_other", "error"]),
        ("ensemble", ["smiles"], ["logS", "logS_std", "logP", "logP_std", "error"]),
        ("regression", ["logS", "error", "smiles"], ["logS_predicted", "logP", "error_predicted"]),
        ("classification", ["active", "active_predicted", "smiles"], ["active_predicted_predicted", "error"]),
        ("regression", ["smiles", "x", "x"], ["logS", "logP", "error"]),
    ],
)
def test_names(models, task, own, added):
    columns = Columns(Predictor.load(models[task]), own, own.index("smiles"), empty_molecules=False)
    assert columns.header == [*own, *added]


def test_classes_without_names_are_numbered(models):
    predictor = Predictor.load(models["multiclass"])
    predictor.classes = None
    columns = Columns(predictor, ["smiles"], 0, empty_molecules=False)
    assert columns.header == ["smiles", "kind", "kind_0", "kind_1", "kind_2", "error"]


@pytest.mark.parametrize(
    "cells",
    [
        ["a", "", "b, c", 'say "x"', "d\re", "f\ng", "\r\n"],
        ["", ""],
        [" leading", "trailing ", "'", ";", "\t", "µ", "\ufeff", '"'],
    ],
)
def test_a_line_is_read_back_as_it_was(cells):
    assert next(csv.reader(io.StringIO(csv_line(cells), newline=""), strict=True)) == cells
