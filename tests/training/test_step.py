"""A step against the formulas written out, and what it may not do: wait for the device."""

import pytest
import torch
from torch import optim
from torch.utils._python_dispatch import TorchDispatchMode

from phcgnn import PHCGNN
from phcgnn.nn import PHMLinear
from phcgnn.training.objective import Objective
from phcgnn.training.step import TrainingStep, clip_gradients
from phcgnn.training.targets import Scaler

from .conftest import make_store

NETWORK = {
    **{"node_features": (5,), "edge_features": (3,), "targets": 2, "n": 2, "width": 8, "layers": 1},
    **{"downstream": (8,), "dropout": 0.0, "downstream_dropout": 0.0, "dtype": torch.float64},
}


def penalties(model):
    """facts.md: L2(W), summed over the layers, is the mean over (k/n, d/n) of the l2 norm along n; L(C) as Eq. (10)."""
    layers = [module for module in model.modules() if isinstance(module, PHMLinear)]
    weight = sum(layer.weight.square().sum(0).sqrt().mean() for layer in layers)
    rule = sum(layer.rule.constants.abs().mean((1, 2)).sum() / len(layer.rule.constants) for layer in layers)
    return weight, rule


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("scale", ["lr", "one"])
@pytest.mark.parametrize("standardise", [True, False])
def test_is_the_formula(scale, clip, standardise):
    """L1 over the labels that exist + s (lambda1 L2(W) + lambda2 L(C)), clipped, Adam: two steps with falling lr."""
    store = make_store()
    scaler = Scaler.fit(store.y) if standardise else None
    model, oracle = PHCGNN(**NETWORK), PHCGNN(**NETWORK)
    oracle.load_state_dict(model.state_dict())
    step = TrainingStep(
        model,
        optim.Adam(model.parameters(), lr=99.0),  # the step's own rate counts
        Objective(loss="l1", lambda1=0.3, lambda2=0.7, penalty_scale=scale),
        scaler=scaler,
        gradient_clip=clip,
    )
    optimizer = optim.Adam(oracle.parameters(), lr=0.01)
    for lr, at in ((0.01, 0), (0.005, 8)):
        batch = store.batch(torch.arange(at, at + 8))
        batch.y = batch.y.double()
        total, count = step(batch, lr)

        y = batch.y if scaler is None else (batch.y - torch.tensor(scaler.mean)) / torch.tensor(scaler.deviation)
        exists = ~y.isnan()
        assert not exists.all()
        errors = (oracle(batch) - y)[exists].abs()
        weight, rule = penalties(oracle)
        loss = errors.mean() + (lr if scale == "lr" else 1) * (0.3 * weight + 0.7 * rule)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            norm = torch.cat([p.grad.flatten() for p in oracle.parameters()]).norm()
            assert norm > clip
            for p in oracle.parameters():
                p.grad *= clip / (norm + 1e-6)
        optimizer.step()
        torch.testing.assert_close(total, errors.detach().sum(), rtol=1e-6, atol=1e-8)
        assert count == exists.sum()
    for found, expected in zip(model.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


class Waits(TorchDispatchMode):
    """Note whatever makes the host wait for the device, or makes a shape depend on its content."""

    SUSPECTS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "item", "_to_copy.host", "equal.default")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if any(suspect in str(function) for suspect in self.SUSPECTS):
            self.found.append(str(function))
        return function(*arguments, **(options or {}))


def test_the_suspects_are_seen():
    with Waits() as waits:
        torch.ones(3).sum().item()
        torch.ones(3).nonzero()
    assert len(waits.found) == 2


@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
def test_nothing_in_a_step_waits_for_the_device(task):
    store = make_store(task, weights=True)
    classes = {"targets": 3} if task == "multiclass" else {}
    model = PHCGNN(**{**NETWORK, **classes, "dropout": 0.1, "dtype": torch.float32})
    model.validate = False
    loss = {"regression": "l1", "classification": "bce", "multiclass": "cross_entropy"}[task]
    step = TrainingStep(
        model,
        optim.Adam(model.parameters(), lr=0.01, fused=True),
        Objective(loss=loss, lambda1=0.1, lambda2=0.1),
        scaler=Scaler.fit(store.y) if task == "regression" else None,
        gradient_clip=1.0,
    )
    loader = store.loader(8, shuffle=True, generator=0, split="train")
    batches = list(loader)
    step(batches[0], 0.01)
    with Waits() as waits:
        for batch in batches[1:]:
            step(batch, 0.01)
    assert waits.found == []


def parameters_with(gradients):
    parameters = []
    for gradient in gradients:
        parameters.append(torch.nn.Parameter(torch.zeros(()) if gradient is None else torch.zeros_like(gradient)))
        parameters[-1].grad = None if gradient is None else gradient.clone()
    return parameters


@pytest.mark.parametrize("limit", [0.1, 1e6])
@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float64), (torch.float32, torch.float64)])
def test_gradients_are_clipped_as_torch_does(limit, dtypes):
    gradients = [torch.randn(3, 4, dtype=dtypes[0]), None, torch.randn(5, dtype=dtypes[1]).t(), torch.zeros(0)]
    gradients[3] = gradients[3].to(dtypes[0])
    found, expected = parameters_with(gradients), parameters_with(gradients)
    clip_gradients(iter(found), limit)
    torch.nn.utils.clip_grad_norm_(expected, limit)
    assert found[1].grad is None
    for a, b in zip(found, expected, strict=True):
        if b.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


def test_a_nan_in_one_gradient_spoils_all_when_clipped():
    parameters = parameters_with([torch.tensor([1.0, float("nan")]), torch.ones(3)])
    clip_gradients(parameters, 1.0)
    assert all(p.grad.isnan().all() for p in parameters)


def test_nothing_to_clip():
    clip_gradients([], 1.0)
    parameter = torch.nn.Parameter(torch.ones(2))
    clip_gradients([parameter], 1.0)
    assert parameter.grad is None
