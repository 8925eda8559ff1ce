from __future__ import annotations

import pytest
import torch
from torch import nn

from phcgnn import PHCGNN
from phcgnn.experiments.bench import synthetic_store
from phcgnn.models import phc_gnn
from phcgnn.models.compact import compact
from phcgnn.nn import PHCNorm, PHMLinear
from phcgnn.nn.affine import Affine
from phcgnn.nn.aggregation import SetAggregation

SMALL = {"node_features": (28,), "edge_features": (4,), "n": 2, "width": 8, "layers": 2, "downstream": (6, 4)}
VARIANTS = {
    "plain": {},
    "softmax": {"aggregation": "softmax"},
    "one PHM": {"mp_mlp": False},
    "nothing downstream": {"downstream": ()},
    "dense": {"dense": True},
    "shared rule": {"share_rule": True},
    "node task": {"task": "node"},
    "concat": {"skip": "concat"},
    "max": {"aggregation": "max", "pooling": "mean"},
}
LEFT = {"whitening": {"norm": "whitening"}, "tanh": {"activation": "tanh"}, "no norm": {"norm": None}}


def trained(**options):
    """A network whose statistics are those of some batches."""
    torch.manual_seed(1)
    model = PHCGNN(**{"dtype": torch.float64, **SMALL, **options})
    store = synthetic_store("zinc", 24)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, PHCNorm):
                module.weight.uniform_(-1, 2)
                module.bias.normal_()
        for batch in store.loader(8):
            model(batch)
    return model.eval(), store.batch(range(10))


@pytest.mark.parametrize("options", [*VARIANTS.values(), *LEFT.values()], ids=[*VARIANTS, *LEFT])
def test_predicts_the_same(options):
    model, batch = trained(**options)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = compact(model)
    with torch.no_grad():
        torch.testing.assert_close(small(batch), model(batch), rtol=1e-10, atol=1e-12)
    assert not any(isinstance(module, PHMLinear) for module in small.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("options", [*VARIANTS.values(), *LEFT.values()], ids=[*VARIANTS, *LEFT])
def test_nodes_that_fill_a_batch_up_change_nothing(options, monkeypatch):
    monkeypatch.setattr(phc_gnn, "uses_onednn", lambda: True)
    seen = []
    monkeypatch.setattr(phc_gnn, "fill_up", lambda rows: seen.append(rows) or rows + 5)
    model, _ = trained(**options)
    small, store = compact(model), synthetic_store("zinc", 7)
    for batch in (store.batch([2]), store.batch(range(7)), store.batch(range(7), csr=True)):
        with torch.no_grad():
            torch.testing.assert_close(small(batch), model(batch), rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(
                small.node_embeddings(batch), model.node_embeddings(batch), rtol=1e-9, atol=1e-11
            )
        assert seen[-1] == batch.num_nodes
        batch.x = batch.x[:, 0]
        with torch.no_grad():
            torch.testing.assert_close(small(batch), model(batch), rtol=1e-10, atol=1e-12)


class Counting(SetAggregation):
    """An aggregation that looks at how many sets there are."""

    def forward(self, x, index=None, ptr=None, dim_size=None, dim=-2, max_num_elements=None):
        return x.new_zeros(dim_size, x.shape[1]).index_add(0, index, x) / dim_size


@pytest.mark.parametrize("what", ["norm", "activation", "aggregation"])
def test_a_network_that_looks_at_all_nodes_at_once_is_not_filled_up(what, monkeypatch):
    monkeypatch.setattr(phc_gnn, "uses_onednn", lambda: True)
    monkeypatch.setattr(phc_gnn, "fill_up", lambda rows: rows + 5)
    options = {"activation": {"activation": lambda x: x - x.mean(0)}, "aggregation": {"aggregation": Counting()}}
    model = PHCGNN(**SMALL, **options.get(what, {}), dtype=torch.float64)
    if what == "norm":
        model.norms = nn.ModuleList(nn.BatchNorm1d(8, track_running_stats=False).double() for _ in model.norms)
    batch = synthetic_store("zinc", 5).batch(range(5))
    with torch.no_grad():
        torch.testing.assert_close(compact(model.eval())(batch), model(batch), rtol=1e-10, atol=1e-12)


def test_networks_pickled_before_there_was_filling_up_are_read():
    model, batch = trained()
    assert "fills_up" not in vars(model)
    assert compact(model).fills_up
    assert torch.isfinite(model(batch)).all()


@pytest.mark.parametrize("source", ["edge-mean", "edge-sum", "constant"])
def test_nodes_without_features_are_filled_up_too(source, monkeypatch):
    monkeypatch.setattr(phc_gnn, "uses_onednn", lambda: True)
    monkeypatch.setattr(phc_gnn, "fill_up", lambda rows: rows + 3)
    model = PHCGNN(**{**SMALL, "node_features": None, "edge_features": 7, "node_source": source}).double().eval()
    batch = synthetic_store("ppa", 3, nodes=9, edges=30).batch(range(3))
    with torch.no_grad():
        torch.testing.assert_close(compact(model)(batch), model(batch), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_norms_and_activations_are_gone(options):
    small = compact(trained(**options)[0])
    assert not any(isinstance(module, PHCNorm) for module in small.modules())
    used = [*small.activations, *([small.predictor.activation] if small.predictor.norms else [])]
    assert not any(isinstance(module, nn.ReLU) for module in used)
    assert any(isinstance(module, Affine) and module.relu for module in small.modules())


def test_what_is_hooked_stays():
    model, batch = trained()
    seen = []
    model.norms[0].register_forward_hook(lambda *_: seen.append("norm"))
    compact(model)(batch)
    assert seen == ["norm"]


def test_nothing_in_it_wants_a_gradient_and_a_training_network_is_taken_in_eval_mode():
    model, batch = trained()
    expected = model(batch)
    small = compact(model.train())
    assert not small.training
    assert not any(p.requires_grad for p in small.parameters())
    torch.testing.assert_close(small(batch), expected, rtol=1e-10, atol=1e-12)
    assert model.training


@pytest.mark.parametrize("shared", ["convs", "transform", "norms"])
def test_what_stands_in_two_places_is_not_merged(shared):
    model, _ = trained(dtype=torch.float32)
    if shared == "transform":
        model.convs[1].transform = model.convs[0].transform
    else:
        getattr(model, shared)[1] = getattr(model, shared)[0]
    batch = synthetic_store("zinc", 24).batch(range(24))
    small = compact(model)
    with torch.no_grad():
        expected = model(batch)
        torch.testing.assert_close(small(batch), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert all(isinstance(norm, PHCNorm) for norm in small.norms)
    assert not any(isinstance(norm, PHCNorm) for norm in small.predictor.norms)


def test_a_network_of_nan_predicts_nan():
    model, _ = trained(dtype=torch.float32)
    with torch.no_grad():
        model.convs[0].transform.linear1.weight.fill_(float("nan"))
    batch = synthetic_store("zinc", 24).batch(range(24))
    with torch.no_grad():
        assert compact(model)(batch).isnan().all()
