import math
import shutil

import numpy as np
import pytest

from phcgnn.errors import DataError
from phcgnn.experiments.results import FinishedRun, finished_runs
from phcgnn.report.molecules import draw_molecule, scaffold_errors, worst
from phcgnn.report.parity import confusion, prediction_figures
from phcgnn.report.predictions import Predictions, read_predictions
from phcgnn.report.training import _said

NAN = float("nan")


def made(task, truth, predicted, targets=("a", "b"), smiles=None):
    names = tuple(str(i) for i in range(len(truth)))
    return Predictions(task, targets, np.array(truth, float), np.array(predicted, float), names, smiles)


def test_errors_of_one_target_are_absolute():
    found = made("regression", [[1.0], [NAN], [-2.0]], [[1.5], [0.0], [1.0]], ("a",))
    np.testing.assert_allclose(found.errors, [0.5, NAN, 3.0])
    assert found.error_name == "absolute error"
    assert worst(found, 5) == [2, 0]


def test_errors_of_several_targets_are_in_units_of_their_deviation():
    truth, predicted = [[1.0, 100.0], [3.0, NAN], [5.0, 300.0]], [[2.0, 110.0], [3.0, 0.0], [5.0, 200.0]]
    found = made("regression", truth, predicted)
    first, second = math.sqrt(8 / 3), 100.0
    expected = [(1 / first + 10 / second) / 2, 0.0, (0 + 100 / second) / 2]
    np.testing.assert_allclose(found.errors, expected)


def test_of_several_targets_the_one_that_errs_most_is_shown():
    truth, predicted = [[0.0, 100.0], [1.0, 200.0], [2.0, 300.0]], [[2.0, 110.0], [1.0, 200.0], [2.0, 300.0]]
    assert _said(made("regression", truth, predicted), 0) == "a: true 0, predicted 2"  # though 10 is more than 2


def test_errors_of_yes_and_no_are_distances_of_probabilities():
    found = made("classification", [[1, 0], [NAN, 1], [NAN, NAN]], [[0.75, 0.25], [0.5, 0.875], [0.5, 0.5]])
    np.testing.assert_allclose(found.errors, [0.25, 0.125, NAN])


def test_errors_of_classes_are_what_the_right_one_lacks():
    found = made("multiclass", [[1], [-100], [0]], [[0.25, 0.75], [0.5, 0.5], [0.125, 0.875]])
    np.testing.assert_allclose(found.errors, [0.25, NAN, 0.875])
    assert confusion(found).tolist() == [[0, 1], [0, 1]]


def test_predictions_of_a_run_are_read_as_they_were_written(regression):
    run = finished_runs(regression)[0]
    found = read_predictions(run)
    assert found.targets == ("<script>window.hacked=1</script>", "b")
    assert found.truth.shape == found.predicted.shape == (len(found.smiles), 2)
    assert not np.isnan(found.predicted).any()
    assert not np.isnan(found.truth[:, 0]).any()
    metric = np.nanmean(np.abs(found.truth - found.predicted), 0).mean()
    assert metric == pytest.approx(run.result["scores"]["test"]["mae"], rel=1e-5)


def test_classes_keep_their_names_and_their_accuracy(multiclass):
    run = FinishedRun(multiclass)
    found = read_predictions(run)
    assert found.targets == ("<i>c", "a", "b")
    table = confusion(found)
    assert table.sum() == len(found.names)
    assert table.trace() / table.sum() == pytest.approx(run.result["scores"]["test"]["accuracy"])


def test_targets_of_one_kind_only_are_left_out_of_the_curves(classification):
    pytest.importorskip("matplotlib")
    pictures = prediction_figures(read_predictions(FinishedRun(classification)), "x-")
    assert [picture.name for picture in pictures] == ["x-roc", "x-precision-recall"]
    assert "1 of 2 targets are not drawn" in pictures[0].caption
    assert "toxic: area" in pictures[0].svg
    assert "dull" not in pictures[0].svg


def test_the_area_in_the_figure_is_the_score_of_the_run(classification):
    pytest.importorskip("matplotlib")
    run = FinishedRun(classification)
    roc, precision_recall = prediction_figures(read_predictions(run))
    scores = run.result["scores"]["test"]
    assert f"toxic: area {scores['roc_auc']:.3f}" in roc.svg
    assert f"toxic: average precision {scores['average_precision']:.3f}" in precision_recall.svg


def test_many_points_become_an_image(regression):
    pytest.importorskip("matplotlib")
    values = np.linspace(0, 1, 3000)[:, None].tolist()
    few, many = (prediction_figures(made("regression", v, v, ("a",)))[0] for v in (values[:50], values))
    assert few.svg.count("<image") == 0
    assert many.svg.count("<image") == 1
    assert len(many.svg) < 200_000


def test_a_damaged_file_is_named(regression, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished_runs(regression)[0].folder, folder)
    (folder / "test_predictions.csv").write_text("graph,b_true\n1,x\n")
    with pytest.raises(DataError, match=r"test_predictions\.csv is damaged"):
        read_predictions(FinishedRun(folder))
    (folder / "test_predictions.csv").write_text("graph,b_true\n1\n")
    with pytest.raises(DataError, match=r"test_predictions\.csv is damaged"):
        read_predictions(FinishedRun(folder))
    (folder / "model.json").unlink()
    with pytest.raises(DataError, match=r"there is no model\.json in it.*test_predictions\.csv cannot be read"):
        read_predictions(FinishedRun(folder))
    (folder / "test_predictions.csv").write_text("")
    assert read_predictions(FinishedRun(folder)) is None


def test_scaffolds_gather_the_errors_of_their_molecules():
    pytest.importorskip("rdkit")
    smiles = ("Cc1ccccc1", "CCc1ccccc1", "CCO", "C(", "C1CCCCC1", "Oc1ccccc1")
    found = made("regression", [[0.0]] * 6, [[1.0], [2.0], [4.0], [8.0], [16.0], [NAN]], ("a",), smiles)
    lines = scaffold_errors(found)
    assert [(line.scaffold, line.count, line.mean, line.worst) for line in lines] == [
        ("c1ccccc1", 2, 1.5, 2.0),
        ("C1CCCCC1", 1, 16.0, 16.0),
        (None, 1, 8.0, 8.0),
        ("", 1, 4.0, 4.0),
    ]


def test_a_drawing_takes_the_page_s_colours_and_asks_for_nothing():
    pytest.importorskip("rdkit")
    text = draw_molecule("CC(=O)Nc1ccc(O)cc1")
    assert "currentColor" in text
    assert "#000000" not in text
    assert "http" not in text
    assert text.count("<svg") == text.count("</svg>") == 1
    assert draw_molecule("not read") is None
    assert draw_molecule("") is None
