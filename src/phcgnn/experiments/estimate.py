"""How long a run will take, from a few measured steps of it."""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from phcgnn.data.graphs import GraphStore
from phcgnn.experiments.execute import Execution
from phcgnn.experiments.settings import RunSettings
from phcgnn.training.loop import Observer
from phcgnn.training.run import train
from phcgnn.training.runtime import Runtime

__all__ = ["Estimate", "estimate"]

FORWARD_SHARE = 1 / 3
"""Of the time that a graph takes in training, so much is the forward pass, which is all that validation needs."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of a step, of an epoch with its validation, and of all epochs that the settings allow."""

    step: float
    epoch: float
    run: float


def estimate(settings: RunSettings, store: GraphStore, execution: Execution, *, steps: int = 4) -> Estimate:
    """Measure some training steps after a first one, and reckon up what an epoch and a run take at most.

    Args:
        settings: Of the run.
        store: Its data.
        execution: How it would be trained.
        steps: How many are measured.
    """
    watch = _Stopwatch(steps)
    config = replace(settings.training, epochs=steps + 2)  # each measures one step at least
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_EnoughError):
        train(
            store,
            Path(folder) / "run",
            model=settings.model,
            config=config,
            runtime=Runtime(
                device=execution.device,
                threads=execution.threads,
                compile=execution.compile,
                checkpoint_seconds=math.inf,
            ),
            observer=watch,
        )
    step = statistics.median(watch.seconds)
    sizes = {name: len(split) for name, split in store.splits.items()}
    batches = math.ceil(sizes["train"] / settings.training.batch_size)
    validation = sizes["val"] / settings.training.batch_size * step * FORWARD_SHARE
    epoch = batches * step + validation
    whole = epoch * settings.training.epochs
    limit = settings.training.max_time
    return Estimate(step, epoch, whole if limit is None else min(whole, limit))


class _EnoughError(Exception):
    """The steps are measured."""


class _Stopwatch(Observer):
    def __init__(self, steps: int) -> None:
        self.steps, self.seconds = steps, list[float]()
        self._last: float | None = None

    def batch(self, epoch: int, done: int, batches: int, graphs: int) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.monotonic()
        if self._last is not None and (done > 1 or batches == 1):  # the first step follows a validation
            self.seconds.append(now - self._last)
        self._last = now
        if len(self.seconds) >= self.steps:
            raise _EnoughError
