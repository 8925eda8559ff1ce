"""Every row of the paper's parameter table, to the unit."""

from __future__ import annotations

import pytest

from phcgnn.models import PHCGNN

ZINC = {"node_features": (28,), "edge_features": (4,)}
OGB = {"node_features": (119, 4, 12, 12, 10, 6, 6, 2, 2), "edge_features": (5, 6, 2)}
MNIST = {"node_features": 3, "edge_features": 1, "targets": 10, "aggregation": "mean", "mp_mlp": False}
PPA = {"node_features": None, "edge_features": 7, "targets": 37, "aggregation": "softmax"}
SHALLOW = {**OGB, "targets": 128}
PCBA = {**SHALLOW, "mp_mlp": False}

ROWS = [
    ("zinc-400k", ZINC, 1, 104, 16, (100, 50), 403_443),
    ("zinc-400k", ZINC, 2, 144, 16, (180, 100), 402_993),
    ("zinc-400k", ZINC, 3, 177, 16, (180, 102), 407_241),
    ("zinc-400k", ZINC, 4, 200, 16, (224, 124), 399_475),
    ("zinc-400k", ZINC, 5, 225, 16, (225, 115), 407_766),
    ("zinc-400k", ZINC, 8, 272, 16, (280, 160), 400_923),
    ("zinc-400k", ZINC, 10, 290, 16, (330, 220), 395_500),
    ("zinc-400k", ZINC, 16, 304, 16, (304, 176), 412_084),
    ("zinc-100k", ZINC, 5, 200, 4, (180, 80), 106_291),
    ("molhiv", {**OGB, "aggregation": "softmax"}, 1, 200, 2, (128, 32), 312_821),
    ("molhiv", {**OGB, "aggregation": "softmax"}, 2, 200, 2, (128, 32), 177_931),
    ("molhiv", {**OGB, "aggregation": "softmax"}, 4, 200, 2, (128, 32), 110_909),
    ("molpcba", PCBA, 1, 512, 7, (768, 256), 3_148_555),
    ("molpcba", PCBA, 2, 512, 7, (768, 256), 1_690_328),
    ("molpcba", PCBA, 4, 512, 7, (768, 256), 986_560),
    ("molpcba", PCBA, 8, 512, 7, (768, 256), 688_832),
    ("molpcba-shallow", SHALLOW, 1, 64, 7, (64, 32), 112_434),
    ("molpcba-shallow", SHALLOW, 4, 64, 7, (64, 32), 109_296),
    ("mnist", MNIST, 1, 84, 4, (256, 128), 101_352),
    ("mnist", MNIST, 2, 140, 4, (256, 128), 99_400),
    ("mnist", MNIST, 4, 224, 4, (256, 128), 106_842),
    ("ppa", PPA, 6, 900, 5, (600, 300), 1_836_552),
]


def build(settings, n, width, layers, downstream, **more):
    return PHCGNN(**settings, n=n, width=width, layers=layers, downstream=downstream, device="meta", **more)


@pytest.mark.parametrize("name, settings, n, width, layers, downstream, expected", ROWS)
def test_parameter_table(name, settings, n, width, layers, downstream, expected):
    model = build(settings, n, width, layers, downstream)
    assert model.num_parameters() == expected
    assert model.summary().total == expected


@pytest.mark.parametrize("name, settings, n, width, layers, downstream, expected", ROWS[2::5])
def test_summary_knows_what_plain_layers_would_cost(name, settings, n, width, layers, downstream, expected):
    summary = build(settings, n, width, layers, downstream).summary()
    plain = build(settings, n, width, layers, downstream, dense=True)
    assert summary.plain == plain.num_parameters() == plain.summary().total == plain.summary().plain


@pytest.mark.parametrize("learn_rule", [True, False])
def test_counts_of_shared_and_frozen_rules(learn_rule):
    own = build(ZINC, 4, 32, 3, (16,), learn_rule=learn_rule)
    shared = build(ZINC, 4, 32, 3, (16,), learn_rule=learn_rule, share_rule=True)
    layers = 3 * 2 + 1 + 1 + 1  # PHM layers of the network: transforms, gate, predictor, last
    difference = (layers - 1) * 4**3
    assert own.num_parameters() - shared.num_parameters() == (difference if learn_rule else 0)
    assert own.num_parameters(learnable=False) - shared.num_parameters(learnable=False) == difference
    assert shared.summary().total == shared.num_parameters()
    assert shared.summary().plain == own.summary().plain
