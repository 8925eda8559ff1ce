"""A run that was killed, signalled or broke down, and then resumed, against one that was left alone: bit by bit."""

import csv
import json
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from phcgnn.training.checkpoint import read_checkpoint, write_checkpoint

from .conftest import MODEL, TRAINING, finish, make_store, start, workers

EVERY_STEP = {"checkpoint_seconds": 0.0, "loggers": ()}
AT_THE_END = {"checkpoint_seconds": 1e9, "loggers": ()}
TIMES = ("seconds", "graphs_per_second")


def outcome(folder):
    """All that a run leaves, but for how long it took."""
    folder = Path(folder)
    with (folder / "metrics.csv").open(newline="") as file:
        history = [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)]
    result = json.loads((folder / "result.json").read_text())
    del result["seconds"]
    return {
        "history": history,
        "result": result,
        **{name: (folder / name).read_text() for name in ("test_predictions.csv", "splits.json", "config.toml")},
    }


def assert_same_run(one, other):
    assert outcome(one) == outcome(other)
    for name in ("weights.safetensors", "start.safetensors"):
        first, second = (load_file(Path(folder) / name) for folder in (one, other))
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert not list(Path(other).rglob("*.part"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "tiny.phg"
    make_store().save(path)
    return str(path)


@pytest.fixture(scope="module")
def whole(tiny, processes, tmp_path_factory):
    """A run that nobody disturbed: 8 epochs of 4 steps."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert finish(start(processes, workers.run, tiny, out, MODEL, LONG, runtime=AT_THE_END)) == 0
    return out


LONG = {**TRAINING, "epochs": 8}


def saves(checkpoint, count, process, seconds=60):
    """Wait until a run has saved so many times."""
    seen, until = None, time.monotonic() + seconds
    while count and time.monotonic() < until and process.is_alive():
        try:
            now = checkpoint.stat().st_mtime_ns
        except FileNotFoundError:
            now = None
        if now != seen:
            seen, count = now, count - 1
    assert count == 0, "it did not save"


def test_sigkill_at_random_moments(tiny, whole, processes, tmp_path):
    """Killed four times, at random moments, every resumption killed in its turn; then left alone."""
    out, moments = tmp_path / "run", random.Random(0)
    for kill in range(4):
        process = start(processes, workers.run, tiny, out, MODEL, LONG, runtime=EVERY_STEP, resume=kill > 0)
        if kill:
            saves(out / "checkpoints" / "last", 1 + moments.randint(1, 4), process)  # the first is what was there
        else:
            saves(out / "checkpoints" / "last", 3, process)
        time.sleep(moments.uniform(0, 0.02))
        process.kill()
        assert finish(process) == -signal.SIGKILL
        assert not (out / "result.json").exists()
    assert finish(start(processes, workers.run, tiny, out, MODEL, LONG, runtime=AT_THE_END, resume=True)) == 0
    assert_same_run(whole, out)


@pytest.mark.parametrize(("where", "saved"), [("fsync", 1), ("fsync", 6), ("replace", 6)])
def test_sigkill_while_a_checkpoint_is_written(tiny, whole, processes, tmp_path, where, saved):
    """Before the bytes are on the disk, and before the file takes its name; at the first save, and at a later one."""
    out = tmp_path / "run"
    process = start(
        processes,
        workers.run_and_die_writing,
        *(tiny, out, MODEL, LONG),
        where=where,
        saves=saved,
        runtime=EVERY_STEP,
    )
    assert finish(process) == -signal.SIGKILL
    (left,) = (out / "checkpoints").glob(".last.*.part")  # what it had begun to write
    assert left.stat().st_size > 0
    assert (out / "checkpoints" / "last").exists() == (saved > 1)
    assert finish(start(processes, workers.run, tiny, out, MODEL, LONG, runtime=AT_THE_END, resume=True)) == 0
    assert_same_run(whole, out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves_and_a_second_one_leaves_at_once(tiny, whole, processes, tmp_path, number):
    out, report = tmp_path / "run", tmp_path / "report"
    process = start(
        processes,
        workers.run_until_signalled,
        *(tiny, out, MODEL, LONG, report),
        number=number,
        runtime=AT_THE_END,
    )
    assert finish(process) == 0
    assert report.read_text() == f"Interrupted: {number.name}"
    state = read_checkpoint(out / "checkpoints" / "last")
    assert (state["progress"]["epoch"], state["loader"]["position"]) == (0, 3)  # the step in hand was finished
    assert finish(start(processes, workers.run, tiny, out, MODEL, LONG, runtime=AT_THE_END, resume=True)) == 0
    assert_same_run(whole, out)

    out, report = tmp_path / "again", tmp_path / "report of again"
    process = start(
        processes,
        workers.run_until_signalled,
        *(tiny, out, MODEL, LONG, report),
        number=number,
        again=True,
        runtime=AT_THE_END,
    )
    code = finish(process)
    assert code == (-signal.SIGTERM if number == signal.SIGTERM else 1)  # as Python dies of a KeyboardInterrupt
    assert not report.exists()
    assert not (out / "checkpoints" / "last").exists()


def test_a_damaged_checkpoint_is_refused_and_says_what_to_do(tiny, processes, tmp_path):
    out, report = tmp_path / "run", tmp_path / "report"
    assert finish(start(processes, workers.run, tiny, out, MODEL, TRAINING, runtime=AT_THE_END)) == 0
    last = out / "checkpoints" / "last"
    content = bytearray(last.read_bytes())
    for damaged, what in ((content[:-100], "cut short"), (b"no checkpoint" * 9, "")):
        last.write_bytes(damaged)
        options = {"runtime": AT_THE_END, "resume": True}
        assert finish(start(processes, workers.run_and_report, tiny, out, MODEL, LONG, report, **options)) == 0
        assert report.read_text().startswith("DataError")
        assert what in report.read_text()
        assert "--overwrite" in report.read_text()


def test_a_checkpoint_holds_no_code(tmp_path):
    """What it holds is tensors and JSON: pickles are nowhere in it, so resuming executes nothing."""
    write_checkpoint(tmp_path / "last", {"a": torch.ones(3), "b": [1, "x"]})
    content = (tmp_path / "last").read_bytes()
    assert b"pickle" not in content
    with pytest.raises(TypeError, match="plain values, got function"):
        write_checkpoint(tmp_path / "last", {"a": finish})
