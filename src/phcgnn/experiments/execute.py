"""Trains what a plan lists: one run after the other here, or several at once in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from phcgnn._version import __version__
from phcgnn.data.graphs import GraphStore
from phcgnn.data.progress import Progress, silent
from phcgnn.experiments.plan import EXTRA_FILE, PlannedRun
from phcgnn.experiments.settings import RunSettings
from phcgnn.experiments.stores import provide_store
from phcgnn.experiments.timing import machine
from phcgnn.files import write_text
from phcgnn.inference.evaluate import evaluate
from phcgnn.training.folder import RunFolder
from phcgnn.training.interrupt import Interrupted, StopRequest
from phcgnn.training.loop import Epoch, NonFiniteLoss, Observer
from phcgnn.training.run import Result, read_result, train
from phcgnn.training.runtime import Device, Runtime

__all__ = ["Execution", "Outcome", "execute", "train_planned"]

POLL_SECONDS = 0.2
STOPPED = 3
"""Exit code of a worker that saved and left."""

Observe = Callable[[PlannedRun], contextlib.AbstractContextManager[Observer]]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How runs are trained; nothing here changes what is learned, but for rounding.

    Args:
        device: ``auto`` takes a GPU where there is one.
        jobs: Runs at once; with several GPUs they take turns.
        threads: Of the CPU, for each run. (default: torch's choice; of several runs at once an equal share)
        compile: See :class:`~phcgnn.training.runtime.Runtime`.
        checkpoint_seconds: How often a run's state is saved, at least.
        time_limit: Everything is saved and left after so many seconds.
    """

    device: Device = "auto"
    jobs: int = 1
    threads: int | None = None
    compile: bool = True
    checkpoint_seconds: float = 60.0
    time_limit: float | None = None


@dataclass
class Outcome:
    """How it went.

    Attributes:
        trained: Names of the runs that were finished now.
        failed: Why a run failed, by name.
        stopped: What stopped the work early.
    """

    trained: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None


def execute(
    runs: Sequence[PlannedRun],
    out: Path,
    execution: Execution,
    *,
    any_size: bool = False,
    observe: Observe | None = None,
    say: Say = lambda text: None,
    progress: Progress = silent,
) -> Outcome:
    """Train every run that is not finished.

    A run that fails is noted and the others go on. SIGTERM, Ctrl-C and the time limit save every run that is under
    way; the next call goes on from there.

    Args:
        runs: What to train.
        out: The reproduction's folder.
        execution: How.
        any_size: Accept data sets of another size than the published one.
        observe: Makes the observer of a run, where runs are trained one at a time.
        say: Told when runs start and end.
        progress: Told how far the reading of data is.
    """
    deadline = None if execution.time_limit is None else time.monotonic() + execution.time_limit
    outcome = Outcome()
    queue = [run for run in runs if run.status != "finished"]
    places: dict[str, tuple[Path, GraphStore]] = {}
    for run in queue:
        name = str(run.settings.data.name)
        if name not in places:
            places[name] = provide_store(name, run.settings.data.root, out, any_size=any_size, progress=progress)
            say(f"{places[name][1]!r}")
    if execution.jobs == 1 or len(queue) <= 1:
        _one_by_one(queue, places, execution, deadline, outcome, observe, say)
    else:
        _side_by_side(queue, places, execution, deadline, outcome, say)
    return outcome


def train_planned(
    settings: RunSettings,
    folder: Path,
    store: GraphStore,
    execution: Execution,
    *,
    scores: bool = True,
    deadline: float | None = None,
    observer: Observer | None = None,
) -> Result:
    """Train one run, or go on with it, and add what the paper's tables need beside its result.

    Args:
        settings: Of the run.
        folder: Where it goes.
        store: Its data.
        execution: How.
        scores: Whether the training split is scored with the best weights.
        deadline: On the clock of :func:`time.monotonic`; the run is saved and left then.
        observer: Told what happens.
    """
    observer = Observer() if observer is None else observer
    watched = _Stepped(observer if deadline is None else _Deadline(observer, deadline))
    result = train(
        store,
        folder,
        model=settings.model,
        config=settings.training,
        runtime=Runtime(
            device=execution.device,
            threads=execution.threads,
            compile=execution.compile,
            checkpoint_seconds=execution.checkpoint_seconds,
        ),
        resume=True,
        observer=watched,
        record={"config.toml": settings.to_toml()},
    )
    cuda = execution.device != "cpu" and torch.cuda.is_available()
    where = machine("cuda" if cuda else "cpu")
    extra: dict[str, Any] = {
        "device": where["device"] if cuda else f"{where['device'] or 'CPU'} ({where['threads']} threads)",
        "date": where["date"],
        "versions": {"phcgnn": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    if watched.how is not None:
        extra["step"] = watched.how
    with StopRequest() as stop:  # what is asked for now is done once the scores are written
        if scores:
            size = 4 * settings.training.batch_size
            found = evaluate([folder], store, "train", device="cuda" if cuda else "cpu", batch_size=size)
            extra["train"] = found["metrics"]
        RunFolder(folder).write_json(EXTRA_FILE, extra)
    if stop.wanted is not None:
        raise Interrupted(stop.wanted)
    return result


def _one_by_one(
    queue: Sequence[PlannedRun],
    places: dict[str, tuple[Path, GraphStore]],
    execution: Execution,
    deadline: float | None,
    outcome: Outcome,
    observe: Observe | None,
    say: Say,
) -> None:
    for number, run in enumerate(queue, 1):
        if deadline is not None and time.monotonic() >= deadline:
            outcome.stopped = "the time limit"
            return
        say(f"{number}/{len(queue)}  {run.name}: {run.status}")
        store = places[str(run.settings.data.name)][1]
        watched = contextlib.nullcontext(Observer()) if observe is None else observe(run)
        try:
            with watched as observer:
                result = train_planned(
                    run.settings,
                    run.folder,
                    store,
                    execution,
                    scores=not run.timing,
                    deadline=deadline,
                    observer=observer,
                )
        except Interrupted as error:
            late = deadline is not None and time.monotonic() >= deadline
            outcome.stopped = "the time limit" if late else str(error)
            return
        except (NonFiniteLoss, torch.OutOfMemoryError, RuntimeError, ValueError, OSError) as error:
            outcome.failed[run.name] = str(error)
            say(f"{run.name}: failed: {error}")
            continue
        outcome.trained.append(run.name)
        say(f"{run.name}: {_describe(result)}")


def _side_by_side(
    queue: Sequence[PlannedRun],
    places: dict[str, tuple[Path, GraphStore]],
    execution: Execution,
    deadline: float | None,
    outcome: Outcome,
    say: Say,
) -> None:
    waiting, working = list(queue), dict[int, tuple[PlannedRun, subprocess.Popen[bytes]]]()
    try:
        with StopRequest() as stop:
            while waiting or working:
                over = stop.wanted or (
                    "the time limit" if deadline is not None and time.monotonic() >= deadline else None
                )
                if over and outcome.stopped is None:
                    outcome.stopped = over
                    for _, process in working.values():
                        process.terminate()
                for slot in range(execution.jobs):
                    if slot not in working and waiting and outcome.stopped is None:
                        run = waiting.pop(0)
                        say(f"{len(queue) - len(waiting)}/{len(queue)}  {run.name}: {run.status}")
                        try:
                            working[slot] = run, _start(run, places[str(run.settings.data.name)][0], slot, execution)
                        except OSError as error:
                            outcome.failed[run.name] = str(error)
                            say(f"{run.name}: failed: {error}")
                if outcome.stopped and not working:
                    return
                time.sleep(POLL_SECONDS)
                for slot, (run, process) in list(working.items()):
                    if process.poll() is not None:
                        del working[slot]
                        _note(run, process.returncode, outcome, say)
    finally:  # whatever ends this, nothing goes on behind it
        for _, process in working.values():
            process.terminate()


def _start(run: PlannedRun, store: Path, slot: int, execution: Execution) -> subprocess.Popen[bytes]:
    run.folder.mkdir(parents=True, exist_ok=True)
    write_text(run.folder / "config.toml", run.settings.to_toml())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    task = {
        "folder": str(run.folder),
        "store": str(store),
        "device": execution.device,
        "compile": execution.compile,
        "checkpoint_seconds": execution.checkpoint_seconds,
        "scores": not run.timing,
        "threads": execution.threads or max(1, cores // execution.jobs),
        "parent": os.getpid(),
    }
    environment = dict(os.environ)
    gpus = torch.cuda.device_count() if execution.device != "cpu" else 0
    if gpus > 1:
        seen = environment.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        environment["CUDA_VISIBLE_DEVICES"] = seen.split(",")[slot % gpus]
    with (run.folder / "run.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "phcgnn.experiments.worker", json.dumps(task)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then tells the workers
        )


def _note(run: PlannedRun, code: int, outcome: Outcome, say: Say) -> None:
    if code == 0:
        outcome.trained.append(run.name)
        say(f"{run.name}: {_describe(read_result(RunFolder(run.folder)))}")
    elif code == STOPPED or (code == -signal.SIGTERM and outcome.stopped):
        say(f"{run.name}: saved" if RunFolder(run.folder).checkpoint.exists() else f"{run.name}: not begun")
        outcome.stopped = outcome.stopped or "a signal to a worker"
    else:
        log = run.folder / "run.log"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = f"{lines[-1] if lines else f'exit code {code}'} (all of it: {log})"
        outcome.failed[run.name] = reason
        say(f"{run.name}: failed: {reason}")


def _describe(result: Result) -> str:
    scores = "  ".join(f"{split} {result.metric} {score[result.metric]:.4f}" for split, score in result.scores.items())
    return f"{scores}  best epoch {result.best_epoch + 1} of {result.epochs}, {result.seconds:.0f} s"


class _Stepped(Observer):
    """Passes everything on, and keeps which path the training steps took."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.how: str | None = None

    def batch(self, epoch: int, done: int, batches: int, graphs: int) -> None:
        self.observer.batch(epoch, done, batches, graphs)

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        self.observer.epoch(epoch, epochs)

    def saved(self, path: Path) -> None:
        self.observer.saved(path)

    def stepped(self, how: str) -> None:
        self.how = how
        self.observer.stepped(how)


class _Deadline(Observer):
    """Asks the run to save and leave once the time is over, by the signal that it listens to anyway."""

    def __init__(self, observer: Observer, deadline: float) -> None:
        self.observer, self.deadline, self.asked = observer, deadline, False

    def batch(self, epoch: int, done: int, batches: int, graphs: int) -> None:
        self.observer.batch(epoch, done, batches, graphs)
        if not self.asked and time.monotonic() >= self.deadline:
            self.asked = True
            signal.raise_signal(signal.SIGTERM)

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        self.observer.epoch(epoch, epochs)

    def saved(self, path: Path) -> None:
        self.observer.saved(path)

    def stepped(self, how: str) -> None:
        self.observer.stepped(how)
