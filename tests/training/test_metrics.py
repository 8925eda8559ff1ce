import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from phcgnn.training.metrics import METRICS, TASK_METRICS, score

NAN = float("nan")


@pytest.fixture
def yes_no():
    targets = (torch.rand(200, 5) < 0.2).float()
    targets[torch.rand(200, 5) < 0.3] = NAN
    targets[:, 4] = torch.where(targets[:, 4].isnan(), NAN, 0.0)  # a task with one class only
    return torch.rand(200, 5), targets


@pytest.mark.parametrize("name", TASK_METRICS["regression"])
def test_regression_against_scikit_learn(name):
    outputs, targets = torch.randn(50, 3).double(), torch.randn(50, 3).double()
    targets[torch.rand(50, 3) < 0.2] = NAN
    oracle = {"mae": sk.mean_absolute_error, "rmse": sk.root_mean_squared_error, "r2": sk.r2_score}[name]
    exists = ~targets.isnan()
    expected = [oracle(targets[exists[:, t], t].numpy(), outputs[exists[:, t], t].numpy()) for t in range(3)]
    found = score(name, outputs, targets)
    assert found.by_target == pytest.approx(expected, rel=1e-9)
    assert found.mean == pytest.approx(np.mean(expected), rel=1e-9)


@pytest.mark.parametrize("name", TASK_METRICS["classification"])
def test_classification_against_scikit_learn(name, yes_no):
    outputs, targets = yes_no
    oracle = {
        "roc_auc": sk.roc_auc_score,
        "average_precision": sk.average_precision_score,
        "accuracy": lambda y, p: sk.accuracy_score(y, p > 0.5),
        "f1": lambda y, p: sk.f1_score(y, p > 0.5, zero_division=0),
        "mcc": lambda y, p: sk.matthews_corrcoef(y, p > 0.5),
    }[name]
    found = score(name, outputs, targets)
    for t in range(4 if METRICS[name].both else 5):
        exists = ~targets[:, t].isnan()
        expected = oracle(targets[exists, t].numpy(), outputs[exists, t].numpy())
        assert found.by_target[t] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    if METRICS[name].both:
        assert math.isnan(found.by_target[4])  # and the average leaves it out
        assert found.mean == pytest.approx(np.mean(found.by_target[:4]))


@pytest.mark.parametrize(("name", "key"), [("roc_auc", "rocauc"), ("average_precision", "ap")])
def test_classification_against_ogb(name, key, yes_no):
    evaluate = pytest.importorskip("ogb.graphproppred.evaluate")
    outputs, targets = yes_no
    evaluator = evaluate.Evaluator({"roc_auc": "ogbg-molhiv", "average_precision": "ogbg-molpcba"}[name])
    evaluator.num_tasks = 5
    expected = evaluator.eval({"y_true": targets.numpy(), "y_pred": outputs.numpy()})[key]
    assert score(name, outputs, targets).mean == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", TASK_METRICS["multiclass"])
def test_classes_against_scikit_learn(name):
    outputs, targets = torch.rand(100, 4).softmax(1), torch.randint(4, (100,))
    oracle = {
        "accuracy": sk.accuracy_score,
        "f1": lambda y, p: sk.f1_score(y, p, average="macro"),
        "mcc": sk.matthews_corrcoef,
    }[name]
    expected = oracle(targets.numpy(), outputs.argmax(1).numpy())
    assert score(name, outputs, targets).mean == pytest.approx(expected, rel=1e-5)
    with_gaps = torch.cat([targets, torch.tensor([-100, -1])]), torch.cat([outputs, torch.zeros(2, 4)])
    assert score(name, with_gaps[1], with_gaps[0]).mean == pytest.approx(expected, rel=1e-5)


def test_improves():
    lower, higher = METRICS["mae"], METRICS["roc_auc"]
    assert lower.improves(1.0, None)
    assert lower.improves(0.5, 1.0)
    assert not lower.improves(1.0, 1.0)
    assert higher.improves(0.6, 0.5)
    assert not higher.improves(0.4, 0.5)
    assert not lower.improves(NAN, None)


def test_nothing_to_score():
    assert math.isnan(score("mae", torch.zeros(2, 1), torch.full((2, 1), NAN)).mean)
    assert math.isnan(score("roc_auc", torch.rand(2, 1), torch.ones(2, 1)).mean)
    assert math.isnan(score("r2", torch.rand(1, 1), torch.ones(1, 1)).mean)


@pytest.mark.parametrize("constant", [0.2, 0.9])
def test_mcc_of_one_decision_for_all_is_nothing(constant):
    targets = torch.tensor([[1.0], [0.0], [0.0], [1.0], [0.0]])
    assert score("mcc", torch.full((5, 1), constant), targets).mean == 0.0
