"""Which path is taken, and that a run comes to the same on either."""

from __future__ import annotations

import dataclasses
import functools
import logging

import pytest
import torch
from safetensors.torch import load_file

from phcgnn.models import PHCGNN
from phcgnn.training.captured import CapturedStep
from phcgnn.training.config import TrainingConfig
from phcgnn.training.parallel import Processes
from phcgnn.training.prepare import compile_for, prepare, reason_for_plain
from phcgnn.training.run import model_config, train
from phcgnn.training.runtime import Runtime
from phcgnn.training.schedule import build_optimizer
from phcgnn.training.step import TrainingStep

from .conftest import MODEL, TRAINING, make_store, recorders

CPU = Runtime(device="cpu", loggers=())
CONFIG = TrainingConfig(**{**TRAINING, "lr": 2.0**-7, "standardise": True})
STILL = {**MODEL, "dropout": 0.0, "downstream_dropout": (0.0,)}
CUDA = torch.device("cuda")


def network(store, **settings):
    model = PHCGNN.from_config(model_config(store.metadata, {**MODEL, **settings}))
    model.validate = False
    return model.train()


@pytest.fixture
def by_tape(monkeypatch):
    """Runs take the fast path, on the CPU."""
    made = []

    def record(*arguments, **options):
        made.append(prepare(*arguments, recorder=recorders.Tape(), **options))
        return made[-1]

    monkeypatch.setattr("phcgnn.training.run.prepare", record)
    return made


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"norm": "whitening"}, "norm='whitening' factorises matrices, for which the host waits"),
        ({"aggregation": "lstm"}, "aggregation='lstm' is none of sum, mean, min, max, softmax, var, std"),
        ({"pooling": "set-transformer"}, "pooling='set-transformer' is none of attention, sum, mean, max, min"),
        ({"aggregation": "pna", "degrees": (1, 2), "aggregators": ("mean", "median")}, "aggregation='median' is none"),
    ],
)
def test_what_the_fast_path_does_not_take(settings, reason):
    found = reason_for_plain(network(make_store(), **settings), CONFIG, Processes(), CUDA)
    assert found.startswith(reason)


def test_what_it_takes_and_where():
    store = make_store()
    for settings in ({}, {"aggregation": "softmax"}, {"aggregation": "pna", "degrees": (1, 2)}, {"norm": None}):
        assert reason_for_plain(network(store, **settings), CONFIG, Processes(), CUDA) is None
    assert reason_for_plain(network(store), CONFIG, Processes(), torch.device("cpu")) == "a CPU replays nothing"
    assert reason_for_plain(network(store), CONFIG, Processes(0, 2), CUDA) == "2 processes train together"
    median = PHCGNN(node_features=(5,), edge_features=(3,), width=8, pooling=network(store).pool)
    assert reason_for_plain(median, CONFIG, Processes(), CUDA).startswith("pooling='custom' is none of")


def test_on_the_cpu_and_where_it_is_told_the_step_is_plain(caplog):
    store = make_store()
    with caplog.at_level(logging.INFO, "phcgnn"):
        for options in ({}, {"compile": False, "recorder": recorders.Tape()}):
            prepared = prepare(store, network(store), CONFIG, **options)
            assert type(prepared.step) is TrainingStep
            assert prepared.loader.shape is None
            assert all("rowptr" not in batch for batch in prepared.loader)
    assert prepared.plain == "it was asked for"
    assert prepared.path == "plain: it was asked for"
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own doing
def test_many_architectures_compile_one_after_the_other():
    store = make_store()
    for width in range(8, 30, 2):
        settings = {**STILL, "width": width, "layers": 2}
        model = network(store, **settings)
        compiled = compile_for(model.config, model.update, backend="eager")
        assert compile_for(network(store, **settings).config, model.update, backend="eager") is compiled
        batch = store.batch([0, 1, 2])
        with torch.no_grad():
            expected = model(batch)
            model.update = compiled
            torch.testing.assert_close(model(batch), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_fast_path_says_so(caplog, precision):
    store = make_store()
    config = dataclasses.replace(CONFIG, precision=precision)
    model = network(store)
    model.validate = True  # it would make the host wait
    with caplog.at_level(logging.INFO, "phcgnn"):
        prepared = prepare(store, model, config, recorder=recorders.Tape())
        for batch in prepared.loader:
            total, count = prepared.step(batch, 0.01)
            assert total.isfinite()
            assert count == (~batch.y.isnan()).sum()
    assert isinstance(prepared.step, CapturedStep)
    assert prepared.step.reason is None
    assert prepared.step.recorded
    assert prepared.path == "recorded"
    assert not model.validate
    assert [record.getMessage() for record in caplog.records] == [
        next(line for line in caplog.messages if line.startswith("the step is recorded for batches of 9 graphs, "))
    ]


def learned(folder):
    return load_file(folder / "weights.safetensors")


@pytest.fixture
def mild(monkeypatch):
    """Keep Adam from making large updates of what is nothing but rounding, as the gradient of a bias before a norm."""

    def build(*arguments, **options):
        optimizer = build_optimizer(*arguments, **options)
        for group in optimizer.param_groups:
            group["eps"] = 1e-3
        return optimizer

    monkeypatch.setattr("phcgnn.training.prepare.build_optimizer", build)


def assert_close_weights(one, other, tolerance=1e-5):
    one, other = learned(one), learned(other)
    assert one.keys() == other.keys()
    left, right = (torch.cat([value.double().flatten() for value in found.values()]) for found in (one, other))
    assert (left - right).norm() <= tolerance * left.norm()


@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
def test_a_run_comes_to_the_same(by_tape, mild, tmp_path, task, monkeypatch):
    store = make_store(task, weights=True)
    balance = "none" if task == "regression" else "sampling"
    config = dataclasses.replace(CONFIG, standardise=task == "regression", class_balance=balance, lambda1=0.1)
    fast = train(store, tmp_path / "fast", model=STILL, config=config, runtime=CPU)
    assert by_tape[0].step.recorded
    monkeypatch.setattr("phcgnn.training.run.prepare", prepare)
    plain = train(store, tmp_path / "plain", model=STILL, config=config, runtime=CPU)
    assert_close_weights(tmp_path / "fast", tmp_path / "plain")
    assert fast.epochs == plain.epochs
    for name, value in plain.scores["val"].items():
        assert fast.scores["val"][name] == pytest.approx(value, rel=1e-3, abs=1e-3)


def test_a_fast_run_resumed_ends_with_the_same_bits(by_tape, store, tmp_path):
    train(store, tmp_path / "whole", model=MODEL, config=CONFIG, runtime=CPU)
    train(store, tmp_path / "parts", model=MODEL, config=dataclasses.replace(CONFIG, epochs=2), runtime=CPU)
    train(store, tmp_path / "parts", model=MODEL, config=CONFIG, runtime=CPU, resume=True)
    assert all(prepared.step.recorded for prepared in by_tape)
    one, other = learned(tmp_path / "whole"), learned(tmp_path / "parts")
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("first", ["plain", "fast"])
def test_a_run_goes_on_on_the_other_path(store, mild, tmp_path, monkeypatch, first):
    paths = {"plain": prepare, "fast": functools.partial(prepare, recorder=recorders.Tape())}
    second = "fast" if first == "plain" else "plain"
    out = tmp_path / "parts"
    for path, epochs in ((first, 2), (second, 4)):
        monkeypatch.setattr("phcgnn.training.run.prepare", paths[path])
        config = dataclasses.replace(CONFIG, epochs=epochs)
        train(store, out, model=STILL, config=config, runtime=CPU, resume=path == second)
    monkeypatch.setattr("phcgnn.training.run.prepare", prepare)
    train(store, tmp_path / "whole", model=STILL, config=CONFIG, runtime=CPU)
    assert_close_weights(out, tmp_path / "whole")
