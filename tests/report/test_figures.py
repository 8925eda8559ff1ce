"""Curves, boxes, parameters against score, and distances to the known algebras."""

import dataclasses

import numpy as np
import pytest

from phcgnn.experiments.comparison import compare
from phcgnn.experiments.paper import paper_tables
from phcgnn.experiments.results import FinishedRun, collect, finished_runs
from phcgnn.report.algebras import algebra_distances, layer_table
from phcgnn.report.boxes import split_boxes
from phcgnn.report.curves import learning_curves, scale
from phcgnn.report.layers import layers_of
from phcgnn.report.sizes import parameters_against_score, short_count
from phcgnn.report.training import _curves

pytest.importorskip("matplotlib")

TABLE = paper_tables()["table2"]


@pytest.fixture(scope="module")
def results(reproduced):
    return collect(TABLE, reproduced)


@pytest.fixture(scope="module")
def group(results):
    return next(result.row.group for result in results if result.runs)


def test_a_curve_needs_its_column(reproduced):
    models = {"four": finished_runs(reproduced / "runs" / "zinc-100k-phc4")}
    assert learning_curves("c", "", models, "val_roc_auc") is None
    picture = learning_curves("c", "", models, "val_mae")
    assert "validation MAE" in picture.svg
    assert "one standard deviation" in picture.caption
    one = learning_curves("c", "", {"four": models["four"][:1]}, "val_mae")
    assert one.caption == ""
    assert "four" not in one.svg  # a legend of one line says nothing


def test_models_with_different_metrics_each_have_their_curves(regression, classification):
    models = {"a": finished_runs(regression), "b": [FinishedRun(classification)]}
    names = [picture.name for picture in _curves(models) if picture is not None]
    assert names[0] == "curve-train-loss"
    assert {"curve-val-mae", "curve-val-roc-auc", "curve-lr"} < set(names)


def test_models_are_named_in_the_legend(results, group):
    models = {result.row.label: result.runs for result in results if result.runs}
    picture = learning_curves("c", "", models, "train_loss")
    assert all(f">{label}<" in picture.svg for label in ("PHC-1", "PHC-4"))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_scale_leaves_out_a_few_far_values_on_either_side(sign):
    values = sign * np.array([50.0, 20.0, *np.linspace(1, 2, 60)])
    low, high = sorted(sign * end for end in scale(values))
    assert (low, high) == (1.0, pytest.approx(2.4, abs=0.2))
    assert scale(values[2:]) is None
    assert scale(values[:19]) is None


def test_boxes_stand_for_every_split_and_model(results, group):
    picture = split_boxes("boxes", TABLE, group, results)
    assert [picture.svg.count(f">{split}<") for split in ("training", "validation", "test")] == [1, 1, 1]
    assert picture.svg.count(">PHC-4<") == 3
    assert "Figure 1" not in picture.title  # which has other rows
    assert split_boxes("boxes", TABLE, TABLE.groups[1], results) is None


def test_of_a_group_that_the_paper_draws_its_rows_are_drawn(results, group):
    drawn = dataclasses.replace(TABLE, boxes=("zinc-100k-phc4",))
    picture = split_boxes("boxes", drawn, group, results)
    assert "Figure 1" in picture.title
    assert ">PHC-4<" in picture.svg
    assert ">PHC-1<" not in picture.svg


def test_parameters_stand_against_scores(results, group):
    grid = next(grid for grid in compare(TABLE, results) if grid.title == group.title)
    picture = parameters_against_score("sizes", group, grid, results)
    assert picture.svg.count(">PHC-1<") == picture.svg.count(">PHC-4<") == 1
    assert parameters_against_score("sizes", TABLE.groups[1], grid, results) is None


@pytest.mark.parametrize("value, text", [(999, "999"), (1000, "1K"), (106_291, "106K"), (3_148_555, "3.15M")])
def test_counts_are_written_shortly(value, text):
    assert short_count(value) == text


def test_distances_are_drawn_and_listed_layer_by_layer(reproduced):
    layers = layers_of(finished_runs(reproduced / "runs" / "zinc-100k-phc4")[0].folder)
    picture = algebra_distances("a", "", layers)
    assert all(f">{name}<" in picture.svg for name in ("quaternion", "cyclic:4", "layer 2, linear 1", "pooling"))
    grid = layer_table("", layers)
    assert len(grid.rows) == len(layers)
    assert all(len(row) == len(grid.columns) for row in grid.rows)
    line = dict(zip(grid.columns, grid.rows[0], strict=True))
    assert line["s(U), trained"].value == layers[0].end.sparsity
    assert line["Nearest, trained"].text == "quaternion"
    assert grid.rows[0][6].value == 0.0


def test_real_layers_have_nothing_to_compare(reproduced):
    layers = layers_of(finished_runs(reproduced / "runs" / "zinc-100k-phc1")[0].folder)
    assert algebra_distances("a", "", layers) is None
    assert "Distance" not in layer_table("", layers).columns
