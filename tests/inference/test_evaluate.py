from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle
from torch_geometric.data import Data

from phcgnn import PHCGNN
from phcgnn.data import GraphStore, StoreMetadata
from phcgnn.data.molecules import make_table, table_to_store
from phcgnn.errors import DataError
from phcgnn.inference import Predictor, model_folders
from phcgnn.inference.evaluate import evaluate
from phcgnn.models import save_model

from .conftest import make_model, many

SMILES = many(90)


def everything(store):
    store.splits["all"] = torch.arange(len(store))
    return store


def test_regression_equals_scikit_learn(models):
    y = np.random.default_rng(0).normal(size=(90, 2)).astype(np.float32)
    y[::7, 1] = np.nan
    store = everything(table_to_store(make_table(SMILES, {"logS": y[:, 0], "logP": y[:, 1]})))
    found = evaluate([models["regression"]], store, "all")
    predicted = Predictor.load(models["regression"])(SMILES).mean
    there = ~np.isnan(y)
    columns = [(y[there[:, t], t], predicted[there[:, t], t]) for t in range(2)]
    expected = {
        "mae": [oracle.mean_absolute_error(*pair) for pair in columns],
        "rmse": [oracle.root_mean_squared_error(*pair) for pair in columns],
        "r2": [oracle.r2_score(*pair) for pair in columns],
    }
    assert (found["graphs"], found["models"], found["split"], found["data"]) == (90, 1, "all", "table")
    for name, values in expected.items():
        assert [found["by_target"][t][name] for t in ("logS", "logP")] == pytest.approx(values, rel=1e-4)
        assert found["metrics"][name] == pytest.approx(np.mean(values), rel=1e-4)
    assert list(found["metrics"]) == ["mae", "rmse", "r2"]


def test_classification_equals_scikit_learn(tmp_path):
    make_model(tmp_path, "classification", targets=["a", "b", "c"])
    y = (np.random.default_rng(1).random((90, 3)) < [0.5, 0.2, 1.0]).astype(np.float32)
    y[3:9, 1] = np.nan
    columns = {name: y[:, t] for t, name in enumerate("abc")}
    store = everything(table_to_store(make_table(SMILES, columns, task="classification")))
    found = evaluate([tmp_path], store, "all")
    predicted = Predictor.load(tmp_path)(SMILES).mean
    for t, name in enumerate("ab"):
        there = ~np.isnan(y[:, t])
        true, p = y[there, t], predicted[there, t]
        expected = {
            "roc_auc": oracle.roc_auc_score(true, p),
            "average_precision": oracle.average_precision_score(true, p),
            "accuracy": oracle.accuracy_score(true, p > 0.5),
            "f1": oracle.f1_score(true, p > 0.5, zero_division=0),
            "mcc": oracle.matthews_corrcoef(true, p > 0.5),
        }
        assert found["by_target"][name] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert found["by_target"]["c"]["roc_auc"] is None, "there is no `no` among its labels"
    both = [found["by_target"][name]["roc_auc"] for name in "ab"]
    assert found["metrics"]["roc_auc"] == pytest.approx(np.mean(both))
    json.loads(json.dumps(found, allow_nan=False))


@pytest.mark.parametrize("labels", [("acid", "base", "other"), ("base", "other"), ("other",)])
def test_classes_are_those_of_the_model_whichever_of_them_the_table_has(models, labels):
    true = [labels[i * 7 // 3 % len(labels)] for i in range(90)]
    store = everything(table_to_store(make_table(SMILES, {"kind": true}, task="multiclass")))
    found = evaluate([models["multiclass"]], store, "all")
    names = np.array(["acid", "base", "other"])
    predicted = names[Predictor.load(models["multiclass"])(SMILES).mean.argmax(1)]
    assert found["metrics"]["accuracy"] == pytest.approx(oracle.accuracy_score(true, predicted))
    assert 0 < found["metrics"]["accuracy"] < 1 or len(labels) == 1
    if len(labels) == 3:
        expected = oracle.f1_score(true, predicted, average="macro", labels=names, zero_division=0)
        assert found["metrics"]["f1"] == pytest.approx(expected, rel=1e-5)
        assert found["metrics"]["mcc"] == pytest.approx(oracle.matthews_corrcoef(true, predicted), abs=1e-6)


def test_a_class_that_the_model_does_not_know(models):
    store = everything(table_to_store(make_table(["C", "CC"], {"kind": ["acid", "salt"]}, task="multiclass")))
    with pytest.raises(DataError, match="has the classes 'salt', which are not among the model's: 'acid', 'base'"):
        evaluate([models["multiclass"]], store, "all")


def test_an_ensemble_is_scored_by_its_mean(models):
    y = np.random.default_rng(2).normal(size=(90, 2))
    store = everything(table_to_store(make_table(SMILES, {"logS": y[:, 0], "logP": y[:, 1]})))
    found = evaluate(model_folders(models["ensemble"]), store, "all", batch_size=17)
    assert found["models"] == 3
    predicted = Predictor.load(models["ensemble"])(SMILES).mean
    assert found["metrics"]["mae"] == pytest.approx(oracle.mean_absolute_error(y, predicted), rel=1e-4)


def small(name="tiny", *, yes_no=False, **changes):
    about = {"task": "regression", "targets": ("y",), "metric": "mae", "node_features": (5,), "edge_features": None}
    graphs = [
        Data(
            x=torch.tensor([[i % 5], [4]]),
            edge_index=torch.tensor([[0, 1], [1, 0]]),
            y=torch.tensor([[float(i % 2 if yes_no else i)]]),
        )
        for i in range(6)
    ]
    splits = {"train": torch.arange(4), "test": torch.tensor([4, 5]), "none": torch.tensor([], dtype=torch.long)}
    return GraphStore.from_pyg(graphs, metadata=StoreMetadata(name=name, **{**about, **changes}), splits=splits)


def test_graphs_that_are_no_molecules(tmp_path):
    model = PHCGNN(node_features=(5,), edge_features=None, n=2, width=8, layers=1, downstream=())
    save_model(model, tmp_path / "bare")
    store = small()
    found = evaluate([tmp_path / "bare"], store)
    with torch.inference_mode():
        output = model.eval()(store.batch(torch.tensor([4, 5])))
    expected = float((output - torch.tensor([[4.0], [5.0]])).abs().mean())
    assert found["metrics"]["mae"] == pytest.approx(expected, rel=1e-4)
    assert found["graphs"] == 2
    assert evaluate([tmp_path / "bare"], store, None)["graphs"] == 6


def test_numbers_that_json_lacks_are_null(tmp_path):
    model = PHCGNN(node_features=(5,), edge_features=None, n=2, width=8, layers=1, downstream=())
    save_model(model, tmp_path, {"task": "regression", "normalisation": {"mean": [3e38], "deviation": [3e38]}})
    found = evaluate([tmp_path], small())
    assert found["metrics"]["rmse"] is None
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"node_features": (6,)}, r"does not fit tiny: node features of the model \(5,\), of the data \(6,\)"),
        ({"featuriser": "zinc/1"}, None),
        (
            {"metric": "roc_auc", "task": "classification", "yes_no": True},
            "task of the model 'regression', of the data 'classification'",
        ),
    ],
)
def test_a_model_of_other_data_is_refused(tmp_path, changes, message):
    model = PHCGNN(node_features=(5,), edge_features=None, n=2, width=8, layers=1, downstream=())
    save_model(model, tmp_path, {"task": "regression"})
    store = small(**changes)
    if message is None:  # a model that does not say what its graphs were made by is taken at its shapes
        assert evaluate([tmp_path], store)["graphs"] == 2
        return
    with pytest.raises(DataError, match=message):
        evaluate([tmp_path], store)


def test_nothing_to_score(tmp_path):
    model = PHCGNN(node_features=(5,), edge_features=None, n=2, width=8, layers=1, downstream=())
    save_model(model, tmp_path, {"task": "regression"})
    with pytest.raises(DataError, match="the split 'none' has no graphs"):
        evaluate([tmp_path], small(), "none")
    with pytest.raises(ValueError, match="at least one model folder"):
        evaluate([], small())
    store = small()
    store.y = None
    with pytest.raises(DataError, match="no targets to score against"):
        evaluate([tmp_path], store)
