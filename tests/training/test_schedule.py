import itertools

import pytest
import torch
from torch import nn, optim

from phcgnn.training.schedule import OPTIMIZERS, SCHEDULES, ScheduleOptions, build_optimizer


def rates(name, scores, better="lower", **options):
    options = {"lr": 0.1, "epochs": 20, **options}
    schedule = SCHEDULES[name](ScheduleOptions(**options), better)
    return [schedule.first(), *(schedule.step(score) for score in scores)]


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize("patience", [0, 1, 3])
def test_plateau_is_torchs(better, patience):
    scores = (torch.randn(60).cumsum(0) * (-0.1 if better == "lower" else 0.1) + torch.randn(60)).tolist()
    optimizer = optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    mode = {"lower": "min", "higher": "max"}[better]
    oracle = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=patience, min_lr=1e-3)
    expected = [0.1]
    for score in scores:
        oracle.step(score)
        expected.append(optimizer.param_groups[0]["lr"])
    found = rates("plateau", scores, better, patience=patience, min_lr=1e-3)
    assert found == pytest.approx(expected, rel=1e-12)
    assert found[-1] < 0.1


def test_step_and_constant():
    assert rates("step", [0.0] * 5, patience=2, factor=0.1) == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert rates("constant", [0.0] * 3) == [0.1] * 4


def test_cosine_with_warmup():
    found = rates("cosine", [0.0] * 19, warmup=4, min_lr=0.001)
    assert found[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    assert found[19] == pytest.approx(0.001)
    assert all(a > b for a, b in itertools.pairwise(found[4:20]))


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_state_round_trips(name):
    options = ScheduleOptions(lr=0.1, epochs=20, patience=2, warmup=2)
    scores = torch.rand(20).tolist()
    whole = SCHEDULES[name](options, "lower")
    whole.first()
    first = [whole.step(s) for s in scores[:9]]
    resumed = SCHEDULES[name](options, "lower")
    resumed.load_state_dict(whole.state_dict())
    assert len(first) == 9
    assert [resumed.step(s) for s in scores[9:]] == [whole.step(s) for s in scores[9:]]


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_optimizers_leave_frozen_parameters_alone(name):
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    optimizer = build_optimizer(name, layer.parameters(), lr=0.1, weight_decay=0.5)
    assert [p.shape for p in optimizer.param_groups[0]["params"]] == [layer.weight.shape]
    assert optimizer.defaults["weight_decay"] == 0.5


def test_warmup_is_at_most_half_of_a_short_run():
    found = SCHEDULES["cosine"](ScheduleOptions(lr=0.1, epochs=2, warmup=5), "lower")
    assert [found.first(), found.step(0.0)] == [pytest.approx(0.05), pytest.approx(0.1)]
