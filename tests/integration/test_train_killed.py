"""The command itself, in processes of its own: killed at random moments, stopped by signals, on two cores."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Data

from phcgnn.data import GraphStore, StoreMetadata

SETTINGS = ["model.n=2", "model.width=8", "model.layers=1", "model.downstream=[8]", "model.downstream_dropout=0.1"]
EPOCHS, STEPS = 15, 8


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    generator = torch.Generator().manual_seed(0)
    graphs = [
        Data(
            x=torch.randint(0, 5, (4, 1), generator=generator),
            edge_index=torch.randint(0, 4, (2, 6), generator=generator),
            edge_attr=torch.randint(0, 3, (6, 1), generator=generator),
            y=torch.randn(1, 1, generator=generator),
        )
        for _ in range(80)
    ]
    metadata = StoreMetadata(
        name="tiny", task="regression", targets=("y",), metric="mae", node_features=(5,), edge_features=(3,)
    )
    splits = {"train": torch.arange(64), "val": torch.arange(64, 72), "test": torch.arange(72, 80)}
    path = tmp_path_factory.mktemp("store") / "tiny.phg"
    GraphStore.from_pyg(graphs, metadata=metadata, splits=splits).save(path)
    return path


def begin(store, out, *arguments):
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    command = [sys.executable, "-m", "phcgnn", "train", "--data", store, "-o", out, *settings, "--device", "cpu"]
    command += ["--epochs", EPOCHS, "--batch-size", 64 // STEPS, "--threads", 1, "--logger", "none", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def end(process, code=0):
    """Wait for the command; return what it printed and what it said."""
    printed, said = process.communicate(timeout=240)
    assert process.returncode == code, said
    return printed, said


def until(condition, process, seconds=120):
    limit = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit
        time.sleep(0.001)


def epochs(out):
    path = out / "metrics.csv"
    return max(len(path.read_text().splitlines()) - 1, 0) if path.exists() else 0


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """What a run that nobody disturbed prints and leaves."""
    out = tmp_path_factory.mktemp("whole") / "run"
    printed, _ = end(begin(store, out))
    return out, json.loads(printed)


def assert_same(whole, out, printed):
    folder, expected = whole
    found = json.loads(printed)
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    for name in ("weights.safetensors", "start.safetensors"):
        one, other = load_file(folder / name), load_file(out / name)
        assert all(torch.equal(one[key], other[key]) for key in one)
    histories = []
    for path in (folder, out):
        with (path / "metrics.csv").open(newline="") as file:
            histories.append([{**row, "seconds": "", "graphs_per_second": ""} for row in csv.DictReader(file)])
    assert histories[0] == histories[1]
    assert len(histories[0]) == EPOCHS
    predictions = [(path / "test_predictions.csv").read_text() for path in (folder, out)]
    assert predictions[0] == predictions[1]


def kill(store, out, moments, *arguments):
    """Kill the command after an epoch and a random while; what it leaves is no finished run."""
    done = epochs(out)
    process = begin(store, out, "--checkpoint-seconds", 0, *arguments)
    until(lambda: epochs(out) > done, process)
    time.sleep(moments.uniform(0, 0.05))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (out / "result.json").exists()


def stop(store, out, number, *arguments):
    """Send the command a signal after an epoch; return what it said."""
    done = epochs(out)
    process = begin(store, out, *arguments)
    until(lambda: epochs(out) > done, process)
    os.kill(process.pid, number)
    printed, said = end(process, code=1)
    assert printed == ""
    assert (out / "checkpoints" / "last").exists()
    return said.strip().splitlines()[-1]


STOPPED = "Error: stopped by {}; the state is saved, and the same command with --resume goes on from there."


def test_killed_resumed_terminated_resumed(store, whole, tmp_path):
    out = tmp_path / "run"
    kill(store, out, random.Random(0))
    assert stop(store, out, signal.SIGTERM, "--resume") == STOPPED.format("SIGTERM")
    printed, _ = end(begin(store, out, "--resume"))
    assert_same(whole, out, printed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_again_and_again(store, whole, tmp_path, seed):
    out, moments = tmp_path / "run", random.Random(seed)
    for number in range(3):
        kill(store, out, moments, *(["--resume"] if number else []))
    printed, _ = end(begin(store, out, "--resume"))
    assert_same(whole, out, printed)


@pytest.mark.slow
def test_ctrl_c(store, whole, tmp_path):
    out = tmp_path / "run"
    assert stop(store, out, signal.SIGINT) == STOPPED.format("SIGINT")
    printed, _ = end(begin(store, out, "--resume"))
    assert_same(whole, out, printed)


@pytest.mark.slow
def test_two_processes_are_started_by_the_command(store, tmp_path):
    printed, said = end(begin(store, tmp_path / "run", "--devices", 2))
    assert json.loads(printed)["epochs"] == EPOCHS  # one object, not two
    assert said.count(f"epoch {EPOCHS}/{EPOCHS}") == 1
    assert len((tmp_path / "run" / "test_predictions.csv").read_text().splitlines()) == 1 + 8
    assert Path(tmp_path / "run" / "model.json").exists()
