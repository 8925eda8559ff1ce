"""Two processes on two cores against one with the same global batch."""

import csv
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from phcgnn.nn import PHCNorm, WhiteningNorm
from phcgnn.training.checkpoint import read_checkpoint
from phcgnn.training.parallel import Processes, SynchronisedNorm, synchronise_norms

from .conftest import MODEL, TRAINING, finish, make_store, ranks, start, workers

NETWORK = {
    **{"node_features": (5,), "edge_features": (3,), "targets": 2, "n": 2, "width": 8, "layers": 2},
    **{"downstream": (8,), "dropout": 0.0, "downstream_dropout": 0.0},
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The sizes of the training split and of a batch make a short last batch that two processes share unevenly."""
    path = tmp_path_factory.mktemp("store") / "tiny.phg"
    store = make_store(weights=True)
    store.y = (store.y - store.y.nanmean(0)) / torch.tensor([7.0, 1.0])  # what plain gradient descent can take
    store.save(path)
    return str(path)


def found(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize(("norm", "clip"), [(None, None), ("component", None), ("component", 0.5)])
def test_two_processes_are_one_with_the_same_global_batch(stored, processes, tmp_path, norm, clip):
    """Losses, weights and running statistics, in float64: with labels missing, weights, penalties and clipping."""
    model = {**NETWORK, "norm": norm}
    options = {"batch_size": 8, "epochs": 3, "clip": clip}
    one = start(processes, workers.steps, stored, tmp_path / "one", model, count=1, **options)
    with ranks(processes, 2, "steps", stored, tmp_path / "two", model, count=2, **options) as both:
        assert [finish(process) for process in both] == [0, 0]
    assert finish(one) == 0
    expected = found(tmp_path / "one.0")
    assert len(expected["losses"]) == 3 * 4
    assert expected["losses"][-1] != pytest.approx(expected["losses"][3], rel=1e-3)  # something was learned
    if norm:
        assert any("running_var" in name for name in expected["state"])
    for rank in range(2):
        got = found(tmp_path / f"two.{rank}")
        torch.testing.assert_close(torch.tensor(got["losses"]), torch.tensor(expected["losses"]), rtol=1e-9, atol=1e-10)
        for name, value in expected["state"].items():
            torch.testing.assert_close(
                torch.tensor(got["state"][name], dtype=torch.float64),
                torch.tensor(value, dtype=torch.float64),
                rtol=1e-8,
                atol=1e-10,
                msg=lambda text, name=name: f"{name}: {text}",
            )


def test_what_processes_say_to_each_other(processes, tmp_path):
    with ranks(processes, 2, "talk", tmp_path / "said") as both:
        assert [finish(process) for process in both] == [0, 0]
    first, second = found(tmp_path / "said.0"), found(tmp_path / "said.1")
    assert first == second  # the error of the first process reached the second
    assert first == {
        **{"sum": [2.0, 1.0], "any": True, "each": [True, True, False]},
        **{"collect": ["rank 0", "rank 1"], "first": "from 0", "raised": first["raised"]},
    }
    assert "by zero" in first["raised"]


def test_one_process_says_nothing():
    alone = Processes()
    value = torch.ones(2)
    assert alone.sum(value) is value
    assert alone.any(False, True)
    assert alone.each_any(False, True) == (False, True)
    assert alone.collect(3) == [3]
    assert alone.first(lambda: 4) == 4


def test_a_run_of_two_processes_is_whole_and_resumes_to_the_same_bits(stored, processes, tmp_path):
    """By Fabric: one folder, every test graph predicted, and a run in two parts ends as one in a single part."""
    runtime = {"devices": 2, "checkpoint_seconds": 0.0, "loggers": ()}
    options = {"runtime": runtime}
    with ranks(processes, 2, "run", stored, tmp_path / "whole", MODEL, TRAINING, **options) as both:
        assert [finish(process) for process in both] == [0, 0]
    with ranks(processes, 2, "run", stored, tmp_path / "short", MODEL, {**TRAINING, "epochs": 2}, **options) as both:
        assert [finish(process) for process in both] == [0, 0]
    state = read_checkpoint(tmp_path / "short" / "checkpoints" / "last")
    assert len(state["random"]) == 2
    assert not torch.equal(state["random"][0]["cpu"], state["random"][1]["cpu"])  # dropout differs
    with ranks(processes, 2, "run", stored, tmp_path / "short", MODEL, TRAINING, resume=True, **options) as both:
        assert [finish(process) for process in both] == [0, 0]
    one, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "short"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    predictions = [(tmp_path / name / "test_predictions.csv").read_text() for name in ("whole", "short")]
    assert predictions[0] == predictions[1]
    assert len(predictions[0].splitlines()) == 1 + 7
    with (tmp_path / "whole" / "metrics.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4


def test_another_number_of_processes_is_another_run(stored, processes, tmp_path):
    out, report = tmp_path / "run", tmp_path / "report"
    options = {"runtime": {"loggers": ()}}
    assert finish(start(processes, workers.run, stored, out, MODEL, TRAINING, **options)) == 0
    options = {"runtime": {"devices": 2, "loggers": ()}, "resume": True}
    with ranks(processes, 2, "run_and_report", stored, out, MODEL, TRAINING, report, **options) as both:
        assert [finish(process) for process in both] == [0, 0]
    assert "processes is 2, was 1" in report.read_text()


def test_norms_are_replaced_where_they_stand():
    model = nn.Sequential(PHCNorm(4, 2), nn.ReLU(), PHCNorm(4, 2))
    names = list(model.state_dict())
    synchronise_norms(model)
    assert [type(model[i]) for i in (0, 2)] == [SynchronisedNorm] * 2
    assert list(model.state_dict()) == names
    with pytest.raises(ValueError, match=r"0: a whitening norm takes its statistics from one process"):
        synchronise_norms(nn.Sequential(WhiteningNorm(4, 2)))
