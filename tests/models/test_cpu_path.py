"""The operations that the CPU alone takes give what those of every device give, gradients and statistics included."""

from __future__ import annotations

import copy

import pytest
import torch

from phcgnn import PHCGNN
from phcgnn.experiments.bench import synthetic_store

USERS = ("nn.affine", "nn.encoder", "nn.norm", "models.edges", "models.phc_gnn")
SMALL = {"n": 2, "width": 16, "layers": 2, "downstream": (8,)}
VARIANTS = {
    "sum": {},
    "softmax": {"aggregation": "softmax"},
    "mean": {"aggregation": "mean"},
    "max": {"aggregation": "max"},
    "one PHM": {"mp_mlp": False, "skip": "previous"},
    "concat": {"skip": "concat", "aggregation": "softmax"},
    "no edge features": {"edge_features": None},
    "whitening": {"norm": "whitening"},
}


@pytest.fixture
def nowhere(monkeypatch):
    """Return a switch that turns those operations off."""

    def off():
        for name in USERS:
            monkeypatch.setattr(f"phcgnn.{name}.plain_on_cpu", lambda *_: False)

    return off


def gradients(model, batch):
    y = model(batch)
    y.square().mean().backward()
    return y.detach(), {name: p.grad for name, p in model.named_parameters()}, model.state_dict()


@pytest.mark.parametrize("shuffled", [False, True], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("data", ["zinc", "molhiv", "ppa"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_equals_the_operations_of_every_device(options, data, shuffled, nowhere):
    store = synthetic_store(data, 12, nodes=7, edges=16)
    metadata = store.metadata
    features = {"node_features": metadata.node_features, "edge_features": metadata.edge_features}
    if metadata.node_features is None and options.get("edge_features", 1) is None:
        options = {**options, "node_source": "constant"}
    model = PHCGNN(**{**SMALL, **features, **options}, dtype=torch.float64)
    batch = store.batch(range(12))
    if shuffled:
        order = torch.randperm(batch.edge_index.shape[1])
        batch.edge_index, batch.edge_attr = batch.edge_index[:, order], batch.edge_attr[order]
        del batch.edges_sorted
    other = copy.deepcopy(model)
    found = gradients(model, batch)
    nowhere()
    expected = gradients(other, batch)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_rowptr_of_the_store_changes_nothing():
    store = synthetic_store("molhiv", 6)
    model = PHCGNN(node_features=store.metadata.node_features, edge_features=(5, 6, 2), **SMALL, aggregation="softmax")
    model.eval()
    assert torch.equal(model(store.batch(range(6))), model(store.batch(range(6), csr=True)))
