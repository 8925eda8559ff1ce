from __future__ import annotations

import csv
import gzip
import json
import shutil

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle
from typer.testing import CliRunner

from phcgnn import PHCGNN
from phcgnn.cli.main import app
from phcgnn.data.benchmarks import DATASETS
from phcgnn.data.molecules import make_table, table_to_store
from phcgnn.inference import Predictor
from phcgnn.models import save_model

from ..data.benchmarks.conftest import write_zinc
from ..inference.conftest import make_model, many, models  # noqa: F401

SMILES = many(40)
Y = np.random.default_rng(0).normal(size=(40, 2)).round(3)


def evaluate(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def scores(*arguments):
    result = evaluate(*arguments, "-q")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1
    return json.loads(result.stdout)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "measured.csv"
    parts = ["train"] * 30 + ["val"] * 4 + ["test"] * 6
    rows = [f"{s},{a},{b},{part}" for s, (a, b), part in zip(SMILES, Y, parts, strict=True)]
    path.write_text("\n".join(["smiles,logS,logP,part", *rows]) + "\n")
    return path


def test_a_table_is_scored_whole(models, table):  # noqa: F811
    found = scores("--model", models["regression"], "--data-path", table)
    predicted = Predictor.load(models["regression"])(SMILES).mean
    assert (found["graphs"], found["split"]) == (40, "all")
    assert found["metrics"]["mae"] == pytest.approx(oracle.mean_absolute_error(Y, predicted), rel=1e-4)
    assert found["by_target"]["logP"]["rmse"] == pytest.approx(
        oracle.root_mean_squared_error(Y[:, 1], predicted[:, 1]), rel=1e-4
    )


def test_a_part_of_a_table_and_columns_of_other_names(models, table):  # noqa: F811
    arguments = ("--model", models["regression"], "--data-path", table, "--split-column", "part")
    predicted = Predictor.load(models["regression"])(SMILES).mean
    for given, part, rows in (((), "test", slice(34, 40)), (("--split", "val"), "val", slice(30, 34))):
        found = scores(*arguments, *given)
        assert (found["split"], found["graphs"]) == (part, rows.stop - rows.start)
        assert found["metrics"]["mae"] == pytest.approx(oracle.mean_absolute_error(Y[rows], predicted[rows]), rel=1e-4)
    swapped = scores("--model", models["regression"], "--data-path", table, "--target-columns", "logP,logS")
    assert swapped["metrics"]["mae"] == pytest.approx(oracle.mean_absolute_error(Y[:, ::-1], predicted), rel=1e-4)
    result = evaluate(*arguments, "--split", "holdout")
    assert result.exit_code == 1
    assert "there is no split 'holdout' in measured; it has train, val, test" in result.stderr


def test_an_ensemble(models, table):  # noqa: F811
    found = scores("--model", models["ensemble"], "--data-path", table)
    predicted = Predictor.load(models["ensemble"])(SMILES).mean
    assert found["models"] == 3
    assert found["metrics"]["mae"] == pytest.approx(oracle.mean_absolute_error(Y, predicted), rel=1e-4)


def test_a_store(models, tmp_path):  # noqa: F811
    split = {"test": np.arange(5, 20), "train": np.arange(5)}
    store = table_to_store(make_table(SMILES, {"logS": Y[:, 0], "logP": Y[:, 1]}), splits=split)
    store.save(tmp_path / "own.phg")
    found = scores("--model", models["regression"], "--data", tmp_path / "own.phg")
    predicted = Predictor.load(models["regression"])(SMILES[5:20]).mean
    assert (found["split"], found["graphs"]) == ("test", 15)
    assert found["metrics"]["mae"] == pytest.approx(oracle.mean_absolute_error(Y[5:20], predicted), rel=1e-4)


def test_a_benchmark(tmp_path, monkeypatch):
    write_zinc(tmp_path)
    store = DATASETS["zinc"].load(tmp_path, check_sizes=False)
    monkeypatch.setattr("phcgnn.data.benchmarks.DATASETS", {"zinc": type("", (), {"load": lambda *a, **k: store})})
    model = PHCGNN(node_features=(28,), edge_features=(4,), n=2, width=8, layers=1, downstream=())
    save_model(model, tmp_path / "model", {"task": "regression"})
    found = scores("--model", tmp_path / "model", "--data", "zinc", "--root", tmp_path, "--split", "val")
    batch = store.batch(store.splits["val"])
    with torch.inference_mode():
        expected = (model.eval()(batch) - batch.y).abs().mean().item()
    assert found["metrics"]["mae"] == pytest.approx(expected, rel=1e-4)


def test_rows_that_cannot_be_used(models, table):  # noqa: F811
    table.write_text(table.read_text() + "C1CC,1,2,test\nCCO,high,2,test\n")
    arguments = ("--model", models["regression"], "--data-path", table)
    result = evaluate(*arguments)
    assert result.exit_code == 1
    assert "2 of 42 rows cannot be used" in result.stderr
    assert "Traceback" not in result.stderr
    assert scores(*arguments, "--on-invalid", "skip")["graphs"] == 40


def test_other_data_than_the_models(models, table, tmp_path):  # noqa: F811
    make_model(tmp_path / "one", targets=["logS"], normalisation=None)
    make_model(tmp_path / "classes", "multiclass")
    for arguments, message in (
        (("--model", tmp_path / "one", "--target-columns", "logS,logP"), "outputs of the model 1, of the data 2"),
        (("--model", tmp_path / "classes", "--target-columns", "part"), "the classes 'train', 'val', 'test'"),
        (("--model", tmp_path / "classes"), "there is no column 'kind'"),
        (("--model", models["classification"], "--target-columns", "logS"), "not a yes or no"),
        (("--model", tmp_path), "no model in it"),
    ):
        result = evaluate("--data-path", table, *arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        if "classes" not in message:
            assert message in result.stderr
        else:
            assert "which are not among the model's: 'acid', 'base', 'other'" in result.stderr


@pytest.mark.parametrize("changes", [{"targets": None}, {"normalisation": 7}, {"task": "x"}, {"featuriser": "ogb/9"}])
def test_a_description_that_was_altered(models, table, tmp_path, changes):  # noqa: F811
    folder = shutil.copytree(models["regression"], tmp_path / "model")
    (folder / "model.json").write_text(json.dumps(json.loads((folder / "model.json").read_text()) | changes))
    result = evaluate("--model", folder, "--data-path", table)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {folder}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "give either --data or --data-path"),
        (["--data", "zinc", "--data-path", "a.csv"], "give either --data or --data-path"),
        (["--data-path", "nix.csv"], "there is no such file"),
        (["--data", "zinc", "--device", "tpu"], "must be auto, cpu or cuda, got 'tpu'"),
    ],
)
def test_wrong_usage(arguments, message, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    result = evaluate("--model", "m", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert evaluate("--data", "zinc").exit_code == 2


@pytest.mark.slow
@pytest.mark.data
def test_the_released_weights_have_their_score_on_a_table_of_the_test_molecules(shared_data, tmp_path):
    """From SMILES to the published ROC-AUC, by the command line alone."""
    molhiv = shared_data / "ogbg_molhiv"
    with gzip.open(molhiv / "split" / "scaffold" / "test.csv.gz", "rt") as file:
        test = {int(line) for line in file}
    with gzip.open(molhiv / "mapping" / "mol.csv.gz", "rt") as file:
        rows = [row for i, row in enumerate(csv.DictReader(file)) if i in test]
    path = tmp_path / "test.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["HIV_active", "smiles", "mol_id"])
        writer.writeheader()
        writer.writerows(rows)
    weights = shared_data / "reference_weights" / "molhiv_phc4.safetensors"
    folder = tmp_path / "released"
    result = CliRunner().invoke(app, ["import-released", str(weights), "-o", str(folder)])
    assert result.exit_code == 0
    found = scores("--model", folder, "--data-path", path, "--on-invalid", "skip")
    assert found["graphs"] >= len(test) - 5
    assert found["metrics"]["roc_auc"] == pytest.approx(0.79598, abs=2e-3)
