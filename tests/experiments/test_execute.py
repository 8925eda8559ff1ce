"""Nothing is repeated, nothing is lost, and one failure does not stop the rest."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from phcgnn.data import GraphStore
from phcgnn.experiments.execute import Execution, Outcome, _note, execute
from phcgnn.experiments.paper import paper_tables
from phcgnn.experiments.plan import plan
from phcgnn.experiments.settings import parse_override
from phcgnn.experiments.timing import machine
from phcgnn.inference.evaluate import evaluate
from phcgnn.models.folder import load_model
from phcgnn.training.folder import RunFolder
from phcgnn.training.loop import Observer

from .conftest import SMALL

CPU = Execution(device="cpu", checkpoint_seconds=0.0)
LONG = {**SMALL, "training.stop_lr": 0.0}  # no run ends before its last epoch
OVERRIDES = [parse_override(f"{name}={value}") for name, value in LONG.items()]


def planned(root, out, *, table="table2", models=("zinc-100k-phc4",), runs=1, epochs=6):
    return plan(
        paper_tables()[table], out, models=models, runs=runs, epochs=epochs, root=str(root), overrides=OVERRIDES
    )


def epochs_of(run):
    path = run.folder / "metrics.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.is_file() else []


def wait_for_epochs(runs, count, process):
    end = time.monotonic() + 120
    while any(len(epochs_of(run)) < count or run.status == "to do" for run in runs):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.01)


def command(root, out, *more):
    """The command, as a process of its own."""
    arguments = ["reproduce", "table2", "-o", str(out), "--models", "zinc-100k-phc4", "--root", str(root), "--any-size"]
    arguments += [part for name, value in LONG.items() for part in ("--set", f"{name}={value}")]
    arguments += ["--device", "cpu", "--checkpoint-seconds", "0", "--no-report", *map(str, more)]
    return subprocess.Popen(
        [sys.executable, "-m", "phcgnn", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


class StopAt(Observer):
    def __init__(self, epoch):
        self.at = epoch

    def epoch(self, epoch, epochs):
        if epoch.epoch == self.at:
            signal.raise_signal(signal.SIGTERM)


@contextlib.contextmanager
def stop_at_epoch_two(run):
    yield StopAt(2)


def test_sigterm_saves_and_the_next_call_ends_as_if_nothing_had_been(tiny_benchmarks, tmp_path):
    (alone,) = planned(tiny_benchmarks, tmp_path / "alone")
    assert execute([alone], tmp_path / "alone", CPU, any_size=True).trained == ["zinc-100k-phc4/seed-0"]
    runs = planned(tiny_benchmarks, tmp_path / "out", runs=2)
    outcome = execute(runs, tmp_path / "out", CPU, any_size=True, observe=stop_at_epoch_two)
    assert (outcome.trained, outcome.failed, outcome.stopped) == ([], {}, "SIGTERM")
    assert [run.status for run in runs] == ["interrupted", "to do"]
    before = epochs_of(runs[0])
    assert 3 <= len(before) < 6
    said = []
    outcome = execute(runs, tmp_path / "out", CPU, any_size=True, say=said.append)
    assert outcome.trained == [run.name for run in runs]
    assert "1/2  zinc-100k-phc4/seed-0: interrupted" in said
    assert epochs_of(runs[0])[: len(before)] == before  # with their seconds: they were not trained again
    one, other = (load_file(run.folder / "weights.safetensors") for run in (alone, runs[0]))
    assert all(torch.equal(one[name], other[name]) for name in one)
    extras = [json.loads((run.folder / "reproduce.json").read_text()) for run in (alone, runs[0])]
    assert extras[0]["train"] == extras[1]["train"]
    assert [extra["step"] for extra in extras] == ["plain: a CPU replays nothing"] * 2


def test_a_signal_while_the_training_split_is_scored(tiny_benchmarks, tmp_path, monkeypatch):
    runs = planned(tiny_benchmarks, tmp_path, runs=2, epochs=1)

    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGTERM)
        return evaluate(*arguments, **options)

    monkeypatch.setattr("phcgnn.experiments.execute.evaluate", interrupted)
    outcome = execute(runs, tmp_path, CPU, any_size=True)
    assert outcome.stopped == "SIGTERM"
    assert [run.status for run in runs] == ["finished", "to do"]


def test_what_is_finished_is_not_repeated(tiny_benchmarks, tmp_path):
    (run,) = planned(tiny_benchmarks, tmp_path, epochs=1)
    assert execute([run], tmp_path, CPU, any_size=True).trained == [run.name]
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")}
    assert execute([run], tmp_path, CPU, any_size=True).trained == []
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")} == before
    (run.folder / "reproduce.json").unlink()  # killed between the result and the scores of the training split
    assert execute([run], tmp_path, CPU, any_size=True).trained == [run.name]
    assert len(epochs_of(run)) == 1
    assert run.status == "finished"


def test_a_run_that_was_killed_goes_on(tiny_benchmarks, tmp_path):
    (run,) = planned(tiny_benchmarks, tmp_path, epochs=60)
    process = command(tiny_benchmarks, tmp_path, "--runs", 1, "--epochs", 60)
    try:
        wait_for_epochs([run], 3, process)
    finally:
        process.kill()
        process.communicate()
    assert run.status == "interrupted"
    before = epochs_of(run)[:2]
    assert execute([run], tmp_path, Execution(device="cpu"), any_size=True).trained == [run.name]
    after = epochs_of(run)
    assert after[:2] == before
    assert [int(row["epoch"]) for row in after] == list(range(60))


def test_the_time_limit_saves_and_leaves(tiny_benchmarks, tmp_path):
    (run,) = planned(tiny_benchmarks, tmp_path, epochs=100_000)
    lengths = []
    for _ in range(2):
        outcome = execute([run], tmp_path, Execution(device="cpu", time_limit=0.5), any_size=True)
        assert (outcome.trained, outcome.failed, outcome.stopped) == ([], {}, "the time limit")
        assert run.status == "interrupted"
        lengths.append(len(epochs_of(run)))
    assert 0 < lengths[0] < lengths[1]
    assert execute([run], tmp_path, Execution(device="cpu", time_limit=0.0), any_size=True).stopped == "the time limit"
    assert len(epochs_of(run)) == lengths[1]


def test_a_run_that_fails_does_not_stop_the_others(tiny_benchmarks, tmp_path):
    broken, sound = planned(tiny_benchmarks, tmp_path, table="vision", models=["phc-4"], epochs=4)
    wild = replace(broken.settings.training, lr=1e30, batch_size=4, gradient_clip=None)
    broken = replace(broken, settings=replace(broken.settings, training=wild))
    outcome = execute([broken, sound], tmp_path, CPU, any_size=True)
    assert outcome.trained == ["cifar10-phc4/seed-0"]
    assert set(outcome.failed) == {"mnist-phc4/seed-0"}
    assert "became NaN or infinite in epoch 1" in outcome.failed["mnist-phc4/seed-0"]
    assert outcome.stopped is None


def test_what_a_gpu_refuses_does_not_stop_the_others(tiny_benchmarks, tmp_path, monkeypatch):
    runs = planned(tiny_benchmarks, tmp_path, runs=2, epochs=1)

    def fail(*arguments, **options):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("phcgnn.experiments.execute.train_planned", fail)
    outcome = execute(runs, tmp_path, CPU, any_size=True)
    assert outcome.failed == {run.name: "CUDA error: an illegal memory access was encountered" for run in runs}


def test_several_at_once_beside_one_that_fails(tiny_benchmarks, tmp_path):
    models = ["zinc-100k-phc4", "zinc-400k-phc4"]
    finished, in_the_way, first, second = planned(tiny_benchmarks, tmp_path / "out", models=models, runs=2, epochs=1)
    runs = [finished, in_the_way, first, second]
    execute([finished], tmp_path / "out", CPU, any_size=True)
    in_the_way.folder.write_text("a file where the run should be")
    outcome = execute(runs, tmp_path / "out", Execution(device="cpu", jobs=2), any_size=True)
    assert sorted(outcome.trained) == [first.name, second.name]
    assert list(outcome.failed) == [in_the_way.name]
    assert [run.status for run in (first, second)] == ["finished", "finished"]
    assert "epoch 1/1" in (first.folder / "run.log").read_text()
    execute([first], tmp_path / "alone", CPU, any_size=True)
    (alone,) = planned(tiny_benchmarks, tmp_path / "alone", models=["zinc-400k-phc4"], epochs=1)
    execute([alone], tmp_path / "alone", CPU, any_size=True)
    one, other = (json.loads((run.folder / "result.json").read_text())["scores"] for run in (alone, first))
    for split in one:
        assert one[split] == pytest.approx(other[split], rel=1e-4)


@pytest.mark.slow
def test_sigterm_to_several_at_once_saves_each(tiny_benchmarks, tmp_path):
    runs = planned(tiny_benchmarks, tmp_path, runs=2, epochs=100)
    options = ("--runs", 2, "--epochs", 100, "--jobs", 2)
    process = command(tiny_benchmarks, tmp_path, *options)
    try:
        wait_for_epochs(runs, 2, process)
        process.terminate()
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "stopped by SIGTERM; everything is saved, and the same command goes on from there" in said
    assert [run.status for run in runs] == ["interrupted", "interrupted"]
    before = [epochs_of(run)[:2] for run in runs]
    _, said = command(tiny_benchmarks, tmp_path, *options).communicate(timeout=300)
    assert [run.status for run in runs] == ["finished", "finished"], said
    assert [epochs_of(run)[:2] for run in runs] == before
    assert all(len(epochs_of(run)) == 100 for run in runs)


def ended(number):
    """Whether a process is gone, or only waits for somebody to notice its end."""
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="children are found in /proc")
def test_no_run_outlives_a_command_that_was_killed(tiny_benchmarks, tmp_path):
    runs = planned(tiny_benchmarks, tmp_path, runs=2, epochs=100_000)
    process = command(tiny_benchmarks, tmp_path, "--runs", 2, "--epochs", 100_000, "--jobs", 2)
    workers = []
    try:
        wait_for_epochs(runs, 1, process)
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            workers = [int(number) for number in file.read().split()]
        assert len(workers) == 2
        process.kill()
        process.communicate()
        end = time.monotonic() + 60
        while not all(map(ended, workers)):
            assert time.monotonic() < end, "the runs go on"
            time.sleep(0.05)
    finally:
        process.kill()
        for number in workers:
            if not ended(number):
                os.kill(number, signal.SIGKILL)
    assert [run.status for run in runs] == ["interrupted", "interrupted"]
    assert all("the process that started this one is gone" in (run.folder / "run.log").read_text() for run in runs)


def test_nothing_goes_on_behind_an_error(tiny_benchmarks, tmp_path, monkeypatch):
    class Worker:
        told = 0

        def poll(self):
            return None

        def terminate(self):
            Worker.told += 1

    monkeypatch.setattr("phcgnn.experiments.execute._start", lambda *arguments: Worker())
    runs = planned(tiny_benchmarks, tmp_path, runs=3)

    def say(text):
        if text.startswith("2/3"):
            raise RuntimeError("a terminal that is gone")

    with pytest.raises(RuntimeError, match="a terminal"):
        execute(runs, tmp_path, Execution(device="cpu", jobs=2), any_size=True, say=say)
    assert Worker.told == 1


def test_a_worker_whose_score_is_undefined_is_noted(tiny_benchmarks, tmp_path):
    (run,) = planned(tiny_benchmarks, tmp_path)
    result = {"scores": {"val": {"roc_auc": None}}, "metric": "roc_auc", "parameters": 1, "best_epoch": -1}
    RunFolder(run.folder).path.mkdir(parents=True)
    RunFolder(run.folder).write_json("result.json", {**result, "epochs": 1, "seconds": 1.0, "ended": "", "seed": 0})
    outcome, said = Outcome(), []
    _note(run, 0, outcome, said.append)
    assert outcome.trained == [run.name]
    assert "val roc_auc nan" in said[0]


def test_the_machine_is_said(tiny_benchmarks, tmp_path):
    (run,) = planned(tiny_benchmarks, tmp_path, epochs=1)
    before = torch.get_num_threads()
    try:
        execute([run], tmp_path, replace(CPU, threads=1), any_size=True)
    finally:
        torch.set_num_threads(before)
    extra = json.loads((run.folder / "reproduce.json").read_text())
    assert extra["device"] == f"{machine('cpu')['device'] or 'CPU'} (1 threads)"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", extra["date"])


def test_the_training_split_is_scored_with_the_best_weights(tiny_benchmarks, tmp_path):
    (run,) = planned(tiny_benchmarks, tmp_path, epochs=2)
    execute([run], tmp_path, CPU, any_size=True)
    store = GraphStore.load(tiny_benchmarks / "zinc.phg")
    model, _ = load_model(run.folder)
    with torch.no_grad():
        error = (model(store.batch(store.splits["train"])) - store.y[store.splits["train"]]).abs().mean().item()
    scores = json.loads((run.folder / "reproduce.json").read_text())
    assert scores["train"]["mae"] == pytest.approx(error, rel=1e-4)
    assert scores["versions"]["torch"] == torch.__version__
