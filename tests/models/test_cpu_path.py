"""The operations that the CPU alone takes give what those of every device give, gradients and statistics included."""

from __future__ import annotations

import copy

import pytest
import torch

from phcgnn import PHCGNN
from phcgnn.experiments.bench import synthetic_store
from phcgnn.nn import PHCConv

USERS = ("nn.affine", "nn.block", "nn.encoder", "nn.fused", "nn.norm", "nn.softmax", "models.edges", "models.phc_gnn")
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


def hooked(aggregation, which):
    torch.manual_seed(0)
    model = PHCGNN(node_features=(28,), edge_features=(4,), **SMALL, aggregation=aggregation).eval()
    seen = []
    module = model.convs[1].aggr_module if which == "aggregation" else model.edge_encoders[1]
    module.register_forward_hook(lambda module, given, y: seen.append(1) or 2 * y)
    return model, seen


@pytest.mark.parametrize("which", ["aggregation", "encoder"])
@pytest.mark.parametrize("aggregation", ["softmax", "sum", "mean"])
def test_hooks_are_called_and_what_they_return_counts(aggregation, which, nowhere):
    model, seen = hooked(aggregation, which)
    batch = synthetic_store("zinc", 6).batch(range(6))
    with torch.no_grad():
        found = model(batch)
        assert seen == [1]
        nowhere()
        torch.testing.assert_close(found, model(batch), rtol=1e-4, atol=1e-4)
        model.convs[1].aggr_module._forward_hooks.clear()
        model.edge_encoders[1]._forward_hooks.clear()
        assert not torch.allclose(found, model(batch), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("aggregation", ["softmax", "sum", "mean"])
def test_global_hooks_are_called(aggregation):
    model = PHCGNN(node_features=(28,), edge_features=(4,), **SMALL, aggregation=aggregation).eval()
    seen = set()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.add(module))
    try:
        model(synthetic_store("zinc", 6).batch(range(6)))
    finally:
        handle.remove()
    assert {*model.edge_encoders, *(conv.aggr_module for conv in model.convs)} <= seen


class Loud(PHCConv):
    """Messages twice as large."""

    def message(self, x_j, edge_attr):
        return 2 * super().message(x_j, edge_attr)


class Sum(PHCConv):
    """An aggregation of its own."""

    def aggregate(self, inputs, index, ptr=None, dim_size=None):
        return 2 * super().aggregate(inputs, index, ptr, dim_size)


class Half(PHCConv):
    """Nodes that keep what they were for one half."""

    def combine(self, x, received, mask=None):
        return super().combine(x / 2, received, mask)


@pytest.mark.parametrize("kind", [Loud, Sum, Half])
@pytest.mark.parametrize("aggregation", ["softmax", "sum", "mean"])
def test_what_a_subclass_overrides_is_used(aggregation, kind, nowhere):
    model = PHCGNN(node_features=(28,), edge_features=(4,), **SMALL, aggregation=aggregation, dtype=torch.float64)
    batch = synthetic_store("zinc", 6).batch(range(6))
    usual = model.eval()(batch)
    for i, conv in enumerate(model.convs):
        own = kind(16, 16, 2, aggregation=aggregation, dtype=torch.float64).eval()
        own.load_state_dict(conv.state_dict())
        model.convs[i] = own
    found = model(batch)
    assert not torch.allclose(found, usual, rtol=1e-3)
    nowhere()
    torch.testing.assert_close(found, model(batch), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("aggregation", ["softmax", "sum"])
def test_gradients_for_several_cotangents_at_once(aggregation):
    model = PHCGNN(
        node_features=(28,), edge_features=(4,), **SMALL, aggregation=aggregation, targets=3, dtype=torch.float64
    )
    y = model(synthetic_store("zinc", 6).batch(range(6)))[0]
    wanted = [model.convs[0].transform.linear1.weight, model.node_encoder.weight, model.edge_encoders[0].weight]
    at_once = torch.autograd.grad(y, wanted, torch.eye(3).double(), is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(part, wanted, retain_graph=True) for part in y]
    for found, expected in zip(at_once, zip(*singly, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-9, atol=1e-11)


def test_a_rowptr_that_is_out_of_date_changes_nothing():
    store = synthetic_store("molhiv", 6)
    model = PHCGNN(node_features=store.metadata.node_features, edge_features=(5, 6, 2), **SMALL, aggregation="softmax")
    model.eval()
    batch, shuffled = store.batch(range(6)), store.batch(range(6), csr=True)
    order = torch.randperm(batch.edge_index.shape[1])
    shuffled.edge_index, shuffled.edge_attr = shuffled.edge_index[:, order], shuffled.edge_attr[order]
    torch.testing.assert_close(model(shuffled), model(batch), rtol=1e-4, atol=1e-4)
