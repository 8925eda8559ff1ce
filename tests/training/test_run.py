import csv
import dataclasses
import json
import math
import tomllib

import pytest
import torch
from safetensors.torch import load_file

from phcgnn.errors import DataError
from phcgnn.models.folder import load_model
from phcgnn.training.checkpoint import read_checkpoint
from phcgnn.training.config import TrainingConfig
from phcgnn.training.loop import Observer
from phcgnn.training.metrics import TASK_METRICS
from phcgnn.training.run import model_config, train
from phcgnn.training.runtime import Runtime
from phcgnn.training.targets import Decoder

from .conftest import MODEL, SIZES, TRAINING, make_store

CPU = Runtime(device="cpu", loggers=())
CONFIG = TrainingConfig(**TRAINING)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def learned(folder):
    return load_file(folder / "weights.safetensors")


def assert_same_weights(one, other):
    one, other = learned(one), learned(other)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_folder_holds_what_design_says(store, tmp_path):
    result = train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=CPU)
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        *("model.json", "weights.safetensors", "config.toml", "metrics.csv", "splits.json", "checkpoints"),
        *("test_predictions.csv", "result.json", "start.safetensors"),
    }
    history = rows(folder / "metrics.csv")
    assert [int(row["epoch"]) for row in history] == [0, 1, 2, 3]
    assert list(history[0]) == [
        *("epoch", "lr", "train_loss", "val_mae", "val_rmse", "val_r2", "best", "seconds", "graphs_per_second"),
    ]
    best = min(history, key=lambda row: float(row["val_mae"]))
    assert int(best["epoch"]) == result.best_epoch
    assert result.scores["val"]["mae"] == pytest.approx(float(best["val_mae"]), rel=1e-6)  # the best epoch's weights
    written = json.loads((folder / "result.json").read_text())
    assert written == dataclasses.asdict(result)
    assert written["ended"] == "all 4 epochs are done"
    settings = tomllib.loads((folder / "config.toml").read_text())
    assert settings["training"]["lr"] == 0.01
    assert settings["model"]["width"] == 8
    splits = json.loads((folder / "splits.json").read_text())
    assert {name: len(splits[name]) for name in SIZES} == SIZES
    about = json.loads((folder / "model.json").read_text())
    assert (about["task"], about["targets"], about["seed"], about["schema"]) == ("regression", ["a", "b"], 0, 1)


@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
def test_the_model_in_the_folder_makes_the_test_predictions(task, tmp_path):
    store = make_store(task)
    result = train(
        store,
        tmp_path / "run",
        model=MODEL,
        config=dataclasses.replace(CONFIG, standardise=task == "regression"),
        runtime=CPU,
    )
    model, about = load_model(tmp_path / "run")
    decode = Decoder.from_metadata(about)
    with torch.no_grad():
        expected = decode(model(store.batch(store.splits["test"])))
    found = rows(tmp_path / "run" / "test_predictions.csv")
    columns = [name for name in found[0] if name.endswith("_predicted")]
    assert len(columns) == expected.shape[1]
    values = torch.tensor([[float(row[name]) for name in columns] for row in found])
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)
    assert [int(row["graph"]) for row in found] == store.splits["test"].tolist()
    truths = store.y[store.splits["test"]].reshape(len(found), -1)
    names = [name for name in found[0] if name.endswith("_true")]
    for row, true in zip(found, truths.tolist(), strict=True):
        assert [
            row[name] == "" if t != t else float(row[name]) == pytest.approx(t)
            for name, t in zip(names, true, strict=True)
        ] == [True] * len(names)
    assert next(iter(result.scores["test"])) == store.metadata.metric
    assert set(result.scores["test"]) == set(TASK_METRICS[task])


def test_learns(tmp_path):
    """Targets around 100 with a deviation of 7: the network needs them standardised, and beats their mean by far."""
    store = make_store(targets=("a",), sizes={"train": 64, "val": 16, "test": 16})
    config = TrainingConfig(epochs=40, batch_size=16, lr=0.02, standardise=True, schedule="cosine")
    result = train(
        store,
        tmp_path / "run",
        model={**MODEL, "dropout": 0.0, "downstream_dropout": (0.0,)},
        config=config,
        runtime=CPU,
    )
    test = store.y[store.splits["test"], 0]
    by_mean = (test - store.y[store.splits["train"], 0].mean()).abs().mean().item()
    assert result.scores["test"]["mae"] < by_mean / 2


def test_the_same_seed_gives_the_same_bits_and_another_does_not(store, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        torch.rand(len(name))  # whatever happened before
        train(store, tmp_path / name, model=MODEL, config=dataclasses.replace(CONFIG, seed=seed), runtime=CPU)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    one, other = learned(tmp_path / "a"), learned(tmp_path / "c")
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_refuses_to_overwrite_and_does_so_when_told(store, tmp_path):
    out = tmp_path / "run"
    train(store, out, model=MODEL, config=CONFIG, runtime=CPU)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    with pytest.raises(FileExistsError, match=r"holds a finished run; give another folder, or --overwrite"):
        train(store, out, model=MODEL, config=CONFIG, runtime=CPU)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    (out / "notes.txt").write_text("mine")
    result = train(store, out, model=MODEL, config=dataclasses.replace(CONFIG, epochs=1), runtime=CPU, overwrite=True)
    assert result.epochs == 1
    assert len(rows(out / "metrics.csv")) == 1
    assert (out / "notes.txt").read_text() == "mine"


def test_resuming_a_finished_run_returns_it_and_more_epochs_go_on(store, tmp_path):
    out = tmp_path / "run"
    first = train(store, out, model=MODEL, config=CONFIG, runtime=CPU)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert train(store, out, model=MODEL, config=CONFIG, runtime=CPU, resume=True) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == times
    longer = dataclasses.replace(CONFIG, epochs=6)
    train(store, out, model=MODEL, config=longer, runtime=CPU, resume=True)
    train(store, tmp_path / "whole", model=MODEL, config=longer, runtime=CPU)
    assert_same_weights(out, tmp_path / "whole")
    (out / "checkpoints" / "last").unlink()  # somebody needed the space
    assert train(store, out, model=MODEL, config=longer, runtime=CPU, resume=True).epochs == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": dataclasses.replace(CONFIG, lr=0.1)}, r"training.lr is 0.1, was 0.01"),
        ({"config": dataclasses.replace(CONFIG, seed=1)}, r"training.seed is 1, was 0"),
        ({"model": {**MODEL, "width": 16}}, r"model.width is 16, was 8"),
        ({"store": make_store(seed=1)}, r"data is '\w+', was '\w+'"),
    ],
)
def test_resuming_with_other_settings_is_refused(store, tmp_path, changes, message):
    given = {"store": store, "model": MODEL, "config": CONFIG}
    train(**given, out=tmp_path / "run", runtime=CPU)
    with pytest.raises(ValueError, match=message):
        train(**{**given, **changes}, out=tmp_path / "run", runtime=CPU, resume=True)


def test_a_cosine_is_not_lengthened(store, tmp_path):
    config = dataclasses.replace(CONFIG, schedule="cosine")
    train(store, tmp_path / "run", model=MODEL, config=config, runtime=CPU)
    with pytest.raises(ValueError, match=r"training.epochs is 9, was 4"):
        train(
            store, tmp_path / "run", model=MODEL, config=dataclasses.replace(config, epochs=9), runtime=CPU, resume=True
        )


@pytest.mark.parametrize("balance", ["weights", "sampling"])
@pytest.mark.parametrize("task", ["classification", "multiclass"])
def test_class_balance(task, balance, tmp_path):
    config = dataclasses.replace(CONFIG, class_balance=balance, loss="focal" if balance == "weights" else None)
    result = train(make_store(task, weights=True), tmp_path / "run", model=MODEL, config=config, runtime=CPU)
    assert all(
        math.isfinite(row["train_loss"])
        for row in read_checkpoint(tmp_path / "run" / "checkpoints" / "last")["progress"]["history"]
    )
    assert result.epochs == 4


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_precisions(store, tmp_path, precision):
    result = train(
        store,
        tmp_path / "run",
        model=MODEL,
        config=dataclasses.replace(CONFIG, precision=precision, standardise=True),
        runtime=CPU,
    )
    assert math.isfinite(result.scores["test"]["mae"])
    assert all(value.dtype != torch.bfloat16 for value in learned(tmp_path / "run").values())
    torch.set_float32_matmul_precision("highest")


def test_deterministic(store, tmp_path):
    try:
        runtime = dataclasses.replace(CPU, deterministic=True)
        result = train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=runtime)
        assert torch.are_deterministic_algorithms_enabled()
        assert result.epochs == 4
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_score_that_nobody_can_compute(tmp_path):
    """One class only in the validation split: no best epoch, the last weights are kept, and the JSON stays JSON."""
    store = make_store("classification", targets=("a",))
    store.y[store.splits["val"]] = 1.0
    result = train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=CPU)
    assert result.best_epoch == -1
    assert math.isnan(result.scores["val"]["roc_auc"])
    text = (tmp_path / "run" / "result.json").read_text()
    assert json.loads(text)["scores"]["val"]["roc_auc"] is None
    assert "NaN" not in text
    again = train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=CPU, resume=True)
    assert math.isnan(again.scores["val"]["roc_auc"])


def test_pna_counts_the_degrees_of_the_training_graphs(store, tmp_path):
    train(
        store,
        tmp_path / "run",
        model={**MODEL, "aggregation": "pna"},
        config=dataclasses.replace(CONFIG, epochs=1),
        runtime=CPU,
    )
    config = load_model(tmp_path / "run").model.config
    batch = store.batch(store.splits["train"])
    expected = torch.bincount(torch.bincount(batch.edge_index[1], minlength=batch.num_nodes))
    assert config.degrees == tuple(expected.tolist())


def test_data_that_cannot_be_trained_on(store, tmp_path):
    del store.splits["val"]
    with pytest.raises(DataError, match=r"no graphs in a split named 'val' \(it has: train, test\)"):
        train(store, tmp_path / "run", runtime=CPU)
    assert not (tmp_path / "run").exists()


def test_the_data_fix_what_they_fix(store):
    with pytest.raises(ValueError, match=r"model.targets is 3 in the settings, but the data set has 2"):
        model_config(store.metadata, {"targets": 3})
    assert model_config(store.metadata, {"targets": 2, "node_features": [5]}).targets == 2


def test_without_a_test_split(store, tmp_path):
    del store.splits["test"]
    result = train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=CPU)
    assert list(result.scores) == ["val"]
    assert not (tmp_path / "run" / "test_predictions.csv").exists()


@pytest.mark.parametrize(
    ("changes", "epochs", "ended"),
    [
        ({"schedule": "step", "patience": 1, "factor": 0.1, "stop_lr": 5e-4}, 2, "the learning rate fell below 0.0005"),
        ({"schedule": "cosine", "stop_lr": 1e-3}, 4, "all 4 epochs are done"),
        (
            {"epochs": 50, "lr": 1e-12, "stop_lr": 0.0, "stop_patience": 2},
            None,
            "no better validation score for 2 epochs",
        ),
        ({"max_time": 1e-9}, 1, "1e-09 seconds are over"),
    ],
)
def test_why_it_ends(store, tmp_path, changes, epochs, ended):
    result = train(store, tmp_path / "run", model=MODEL, config=dataclasses.replace(CONFIG, **changes), runtime=CPU)
    assert result.ended == ended
    assert epochs is None or result.epochs == epochs
    assert result.epochs < 50


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("aggregation", ["sum", "softmax"])
def test_deterministic_on_a_gpu(store, tmp_path, aggregation):
    """The same seed gives the same bits, and a run that goes on ends as one in a single part."""
    runtime = Runtime(device="cuda", loggers=(), deterministic=True, checkpoint_seconds=0.0)
    model = {**MODEL, "aggregation": aggregation}
    try:
        for name in ("a", "b"):
            train(store, tmp_path / name, model=model, config=CONFIG, runtime=runtime)
        short = dataclasses.replace(CONFIG, epochs=2)
        train(store, tmp_path / "c", model=model, config=short, runtime=runtime)
        train(store, tmp_path / "c", model=model, config=CONFIG, runtime=runtime, resume=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert_same_weights(tmp_path / "a", tmp_path / "c")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_on_a_gpu_never_waits_for_it(store, tmp_path):
    """As torch itself sees it: whatever synchronises within an epoch's steps is an error."""

    class Watch(Observer):
        def batch(self, epoch, done, batches, graphs):
            torch.cuda.set_sync_debug_mode("error" if epoch == 1 and done < batches else "default")

    runtime = Runtime(device="cuda", loggers=(), checkpoint_seconds=1e9)
    try:
        result = train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=runtime, observer=Watch())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.epochs == 4
