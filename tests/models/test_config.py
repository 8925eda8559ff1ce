from __future__ import annotations

import dataclasses

import pytest

from phcgnn.models import PHCGNNConfig

BASE = {"node_features": (5,), "edge_features": 2}
FULL = {
    "node_features": None,
    "edge_features": (5, 6, 2),
    "targets": 12,
    "task": "node",
    "n": 3,
    "width": 9,
    "layers": 3,
    "mp_mlp": False,
    "aggregation": "pna",
    "aggregators": ("max",),
    "scalers": ("identity",),
    "degrees": (0, 4, 2),
    "message_activation": "relu",
    "skip": None,
    "pooling": "mean",
    "downstream": (),
    "dropout": (0.1, 0.2, 0.0),
    "downstream_dropout": 0.0,
    "dropout_kind": "element",
    "norm": None,
    "activation": "gelu",
    "node_source": "constant",
    "rule_start": "uniform",
    "learn_rule": False,
    "share_rule": True,
    "weight_start": "folded-he",
    "terms": 2,
    "dense": False,
}


@pytest.mark.parametrize("values", [BASE, FULL, {**BASE, "downstream_dropout": (0.1, 0.3)}])
def test_round_trips(values):
    config = PHCGNNConfig(**values)
    assert PHCGNNConfig.from_json(config.to_json()) == config
    assert PHCGNNConfig.from_toml(config.to_toml()) == config
    assert PHCGNNConfig.from_dict(config.to_dict()) == config
    assert hash(PHCGNNConfig.from_toml(config.to_toml())) == hash(config)
    if values is FULL:
        assert set(values) == set(PHCGNNConfig.fields())
        differ = [f.name for f in dataclasses.fields(config) if getattr(config, f.name) != f.default]
        assert set(differ) == set(FULL) - {"downstream_dropout", "dense"}


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PHCGNNConfig(**BASE).n = 2


def test_absent_keys_are_defaults_and_none_is_a_word():
    config = PHCGNNConfig.from_toml('node_features = [3, 2]\nedge_features = "none"\nskip = "none"\n')
    assert config == PHCGNNConfig(node_features=(3, 2), edge_features=None, skip=None)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"width": 30}, "`width` must be a multiple of n=4, got 30. Use 28 or 32"),
        ({"downstream": (128, 30)}, "`downstream` must be a multiple of n=4, got 30"),
        ({"width": "200"}, "`width` must be an int, got '200'"),
        ({"mp_mlp": "True"}, "`mp_mlp` must be a bool, got 'True'"),
        ({"downstream": "128,32"}, "`downstream` must be a tuple of ints, got '128,32'"),
        ({"skip": "none"}, "`skip` must be 'initial' or 'previous' or 'concat' or None, got 'none'"),
        ({"task": "edge"}, "`task` must be 'graph' or 'node', got 'edge'"),
        ({"layers": 0}, "`layers` must be at least 1"),
        ({"targets": True}, "`targets` must be an int"),
        ({"n": 0}, "`n` must be at least 1"),
        ({"terms": 0}, "`terms` must be at least 1"),
        ({"node_features": ()}, "`node_features` must list at least one feature"),
        ({"node_features": (4, 0)}, "`node_features` must be at least 1"),
        ({"edge_features": 0}, "`edge_features` must be at least 1"),
        ({"edge_features": 0.5}, "`edge_features` must be a tuple of ints or an int or None"),
        ({"aggregation": "sofmax"}, "`aggregation`: unknown aggregation 'sofmax'.*Did you mean 'softmax'"),
        ({"pooling": "atention"}, "`pooling`: unknown pooling 'atention'; choose from attention, .*mean 'attention'"),
        ({"activation": "rleu"}, "`activation`: unknown activation 'rleu'.*Did you mean"),
        ({"norm": "batch"}, "`norm`: unknown norm 'batch'; choose from component, whitening"),
        ({"weight_start": "glorto"}, "`weight_start`: .*Did you mean 'glorot'"),
        ({"rule_start": "quaternoin"}, "`rule_start`: unknown rule start 'quaternoin'.*Did you mean 'quaternion'"),
        ({"rule_start": "octonion"}, "`rule_start`: .*n=8"),
        ({"scalers": ("linaer",)}, "`scalers`: unknown scaler 'linaer'"),
        ({"dropout": 1.0}, r"`dropout` must be a probability in \[0, 1\), got 1.0"),
        ({"dropout": (0.1,)}, r"`dropout` must be one number or one for each of the 2 layers, got \(0.1,\)"),
        ({"downstream_dropout": (0.1,)}, "each of the 2 hidden downstream layers"),
        ({"aggregation": "pna"}, "aggregation='pna' needs `degrees`"),
        ({"aggregation": "pna", "degrees": (5,)}, r"`degrees` must count the nodes.*got \[5\]"),
        ({"aggregation": "pna", "degrees": (-1, 2)}, "`degrees` must count the nodes"),
        ({"aggregation": "pna", "degrees": (1, 2), "aggregators": ()}, "`aggregators` must name at least one"),
        ({"degrees": (1, 2)}, "`degrees` serves aggregation='pna' alone, got 'sum'"),
        ({"node_features": None, "edge_features": None}, "set node_source='constant' instead of 'edge-sum'"),
        (
            {"dense": True, "share_rule": True},
            "dense=True has no PHM layers, so `share_rule` must stay False, got True",
        ),
        ({"dense": True, "learn_rule": False}, "`learn_rule` must stay True"),
        ({"dense": True, "terms": 2}, "`terms` must stay None"),
        ({"dense": True, "weight_start": "he"}, "`weight_start` must stay 'phm', got 'he'"),
        ({"aggregators": ("max",)}, "`aggregators` serves aggregation='pna' alone, got 'sum'"),
        ({"scalers": ("linear",), "aggregation": "max"}, "`scalers` serves aggregation='pna' alone, got 'max'"),
        ({"node_source": "constant"}, r"node_features=\(5,\); leave `node_source` out, or set node_features to None"),
    ],
)
def test_bad_values(values, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PHCGNNConfig(**{**BASE, **values})


@pytest.mark.parametrize(
    "values, message",
    [
        ({**BASE, "aggregatoin": "sum"}, "unknown field 'aggregatoin'. Did you mean 'aggregation'"),
        ({**BASE, "zzz": 1}, "unknown field 'zzz'. Choose from node_features, edge_features"),
        ({}, "`node_features` and `edge_features` must be given"),
        ({"node_features": [3]}, "`edge_features` must be given"),
        ([BASE], "expected a table of fields, got"),
        ({**BASE, "width": "none"}, "`width` must be an int, got 'none'"),
    ],
)
def test_bad_files(values, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PHCGNNConfig.from_dict(values)
