from __future__ import annotations

import json

import pytest

from phcgnn.data.metadata import METRICS, StoreMetadata

GOOD = {
    "name": "set",
    "task": "regression",
    "targets": ("y", "z"),
    "metric": "mae",
    "node_features": (28, 3),
    "edge_features": 4,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"node_features": None, "edge_features": None},
        {"task": "multiclass", "targets": ("y",), "metric": "mcc", "num_classes": 3},
        {"level": "node", "featuriser": "ogb/1", "targets": ()},
    ],
)
def test_round_trip(changes):
    metadata = StoreMetadata(**{**GOOD, **changes})
    again = StoreMetadata.from_json(metadata.to_json())
    assert again == metadata
    assert type(again.node_features) is type(metadata.node_features)
    assert json.loads(metadata.to_json())["name"] == "set"


@pytest.mark.parametrize("task", METRICS)
def test_every_listed_metric_is_accepted(task):
    extra = {"num_classes": 2, "targets": ("y",)} if task == "multiclass" else {}
    for metric in METRICS[task]:
        assert StoreMetadata(**{**GOOD, **extra, "task": task, "metric": metric}).metric == metric


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"name": ""}, "`name` must be a text"),
        ({"featuriser": ""}, "`featuriser` must be a text"),
        ({"task": "ranking"}, "`task` must be one of regression, classification, multiclass, got 'ranking'"),
        ({"metric": "roc_auc"}, "`metric` must be one of mae, rmse, r2 for the task 'regression'"),
        ({"level": "edge"}, "`level` must be one of graph, node"),
        ({"targets": ["y"]}, "`targets` must be a tuple of names"),
        ({"targets": ("y", "y")}, "different names, got y more than once"),
        ({"num_classes": 3}, "`num_classes` is for the task 'multiclass'"),
        ({"task": "multiclass", "metric": "accuracy"}, "needs `num_classes`"),
        ({"task": "multiclass", "metric": "accuracy", "num_classes": 3}, "has one target, got y, z"),
        ({"node_features": ()}, "`node_features` is an empty tuple; write None"),
        ({"edge_features": 0}, "`edge_features` must be at least 1, got 0"),
        ({"node_features": (3, 0)}, "`node_features` must be at least 1, got 0"),
    ],
)
def test_nonsense_is_refused(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        StoreMetadata(**{**GOOD, **changes})


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object, got list"),
        ('{"name": "a", "colour": 1}', "unknown colour, missing class_names, missing edge_features"),
    ],
)
def test_bad_json_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        StoreMetadata.from_json(text)
