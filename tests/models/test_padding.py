"""A padded batch is the batch: same outputs, loss, gradients and running statistics, for every kind of network."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.data import Data

from phcgnn import PHCGNN
from phcgnn.data import GraphStore, PaddedShape, StoreMetadata
from phcgnn.training.losses import TASK_LOSS
from phcgnn.training.objective import Objective
from phcgnn.training.targets import Scaler

CASES = {
    "sum": {},
    "mean": {"aggregation": "mean", "pooling": "mean", "skip": "previous"},
    "max": {"aggregation": "max", "pooling": "max", "skip": "concat"},
    "min": {"aggregation": "min", "pooling": "sum", "skip": None},
    "softmax": {"aggregation": "softmax", "mp_mlp": False},
    "pna": {"aggregation": "pna", "degrees": (2, 5, 3), "mp_mlp": False},
    "activated": {"message_activation": "relu", "dense": True},
    "whitening": {"norm": "whitening", "layers": 1},
    "no norm": {"norm": None, "mp_mlp": False, "layers": 4},
    "node": {"task": "node", "aggregation": "mean"},
    "edges only": {"node_features": None, "node_source": "edge-mean"},
    "constant": {"node_features": None, "node_source": "constant"},
    "real features": {"node_features": 2, "edge_features": 3},
    "no edge features": {"edge_features": None},
}


def make_store(node_features, edge_features, level, task):
    generator = torch.Generator().manual_seed(0)

    def features(kind, rows):
        if kind is None:
            return None
        if isinstance(kind, int):
            return torch.randn(rows, kind, generator=generator, dtype=torch.float64)
        return torch.stack([torch.randint(c, (rows,), generator=generator) for c in kind], dim=1)

    graphs = []
    for nodes in (4, 1, 6, 2, 5, 3):
        edges = torch.randint(nodes, (2, 2 * nodes + 3), generator=generator)
        rows = nodes if level == "node" else 1
        y = torch.randn(rows, 2, generator=generator, dtype=torch.float64)
        if task == "classification":
            y = (y > 0).double()
        if task == "multiclass":
            y = torch.randint(3, (rows,), generator=generator)
        elif nodes == 6:
            y[0, 1] = float("nan")
        x, e = features(node_features, nodes), features(edge_features, edges.shape[1])
        graphs.append(Data(x=x, edge_index=edges, edge_attr=e, y=y, num_nodes=nodes))
    metadata = StoreMetadata(
        name="tiny",
        task=task,
        level=level,
        targets=("a",) if task == "multiclass" else ("a", "b"),
        metric={"regression": "mae", "classification": "roc_auc", "multiclass": "accuracy"}[task],
        num_classes=3 if task == "multiclass" else None,
        node_features=node_features,
        edge_features=edge_features,
    )
    store = GraphStore.from_pyg(graphs, metadata=metadata)
    store.weights = torch.rand(len(store), generator=generator, dtype=torch.float64) + 0.5
    return store


def run(model, batch, objective, scaler):
    """Return outputs, what a step returns, the gradients and the state after a forward in training mode."""
    model = copy.deepcopy(model)
    outputs = model(batch)
    targets = batch.y if scaler is None else scaler.apply(batch.y)
    total, count = objective.task(outputs, targets, None if model.config.task == "node" else batch.weight)
    loss = total / count + objective.penalty(model, 0.01)
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return outputs, (total, count), gradients, model.state_dict()


@pytest.mark.parametrize("csr", [True, False])
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_ghosts_change_nothing(settings, csr):
    same_as_unpadded({"node_features": (5, 3), "edge_features": (4, 2), **settings}, "regression", csr)


@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
@pytest.mark.parametrize("level", ["graph", "node"])
def test_ghosts_change_nothing_whatever_the_task(task, level):
    same_as_unpadded({"node_features": (5, 3), "edge_features": (4, 2), "task": level}, task, csr=True)


def same_as_unpadded(settings, task, csr):
    settings = {
        "n": 2,
        "width": 8,
        "layers": 2,
        "downstream": (6,),
        "targets": 3 if task == "multiclass" else 2,
        **settings,
    }
    model = PHCGNN(**settings, dtype=torch.float64)
    store = make_store(settings["node_features"], settings["edge_features"], settings.get("task", "graph"), task)
    objective = Objective(
        loss=TASK_LOSS[task],
        lambda1=0.1,
        lambda2=0.1,
        positive_weights=torch.tensor([2.0, 0.5]) if task == "classification" else None,
        class_weights=torch.tensor([0.5, 2.0, 1.0]) if task == "multiclass" else None,
    )
    scaler = Scaler.fit(store.y) if task == "regression" else None
    chosen = torch.tensor([4, 2, 0, 5, 2])
    plain = store.batch(chosen)
    outputs, counted, gradients, state = run(model, plain, objective, scaler)
    # room for three more graphs; hardly any node, but many edges; the other way round
    for shape in (PaddedShape(9, 40, 90), PaddedShape(6, 25, 200), PaddedShape(6, 60, 64)):
        batch = store.batch(chosen, shape=shape, csr=csr)
        found, totals, got, after = run(model, batch, objective, scaler)
        assert found.shape[0] == (shape.nodes if "task" in settings and settings["task"] == "node" else shape.graphs)
        assert found.isfinite().all()
        torch.testing.assert_close(found[: len(outputs)], outputs, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(totals, counted, rtol=1e-11, atol=1e-11)
        for (name, _), one, other in zip(model.named_parameters(), got, gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9, msg=name)
        assert after.keys() == state.keys()
        for name, value in after.items():
            torch.testing.assert_close(value, state[name], rtol=1e-11, atol=1e-11, msg=name)
        evaluated = copy.deepcopy(model).eval()
        with torch.no_grad():
            torch.testing.assert_close(evaluated(batch)[: len(outputs)], evaluated(plain), rtol=1e-10, atol=1e-10)


def test_many_ghost_edges_stay_finite():
    """A ghost that hears itself a thousand times in each of sixteen layers would reach infinity in float32."""
    model = PHCGNN(
        node_features=(5, 3), edge_features=(4, 2), n=2, width=8, layers=16, downstream=(6,), skip="previous"
    )
    store = make_store((5, 3), (4, 2), "graph", "regression")
    batch = store.batch([0, 2, 4], shape=PaddedShape(4, 16, 2000))
    outputs = model(batch)
    assert outputs.isfinite().all()
    outputs[batch.graph_mask].square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_rowptr_of_other_edges_is_left_alone_or_refused():
    model = PHCGNN(node_features=(5, 3), edge_features=(4, 2), n=2, width=8, layers=2, downstream=(6,)).eval()
    store = make_store((5, 3), (4, 2), "graph", "regression")
    batch = store.batch([0, 2], csr=True)
    expected = model(batch)
    batch.edge_index, batch.edge_attr = batch.edge_index.flip(1), batch.edge_attr.flip(0)
    del batch.edges_sorted  # as data.md asks of a transform that touches edges
    torch.testing.assert_close(model(batch), expected)
    batch = store.batch([0, 2], csr=True)
    batch.rowptr = batch.rowptr[:-1]
    with pytest.raises(ValueError, match=r"`rowptr`.*expected \(11,\)"):
        model(batch)
