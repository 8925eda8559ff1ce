"""The loop: epochs of steps, a validation after each, the best kept, everything resumable."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from phcgnn.data.batching import real_graphs
from phcgnn.data.loader import GraphLoader
from phcgnn.training.captured import CapturedStep
from phcgnn.training.checkpoint import random_state, read_checkpoint, restore_random_state, write_checkpoint
from phcgnn.training.config import TrainingConfig
from phcgnn.training.interrupt import Interrupted, StopRequest
from phcgnn.training.metrics import METRICS, score
from phcgnn.training.parallel import Processes
from phcgnn.training.schedule import SCHEDULES, ScheduleOptions
from phcgnn.training.step import TrainingStep
from phcgnn.training.targets import Decoder

__all__ = ["Epoch", "NonFiniteLoss", "Observer", "Trainer"]


ASK_EVERY = 8
"""Several processes agree this often, in steps, whether to save or to stop; it costs them a message each."""


class NonFiniteLoss(RuntimeError):
    """The loss became NaN or infinite; the last checkpoint is from before."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One line of ``metrics.csv``."""

    epoch: int
    lr: float
    train_loss: float
    scores: dict[str, float]
    seconds: float
    graphs_per_second: float
    best: bool

    def row(self) -> dict[str, float | int]:
        """Return it as plain numbers by column."""
        scores = {f"val_{name}": value for name, value in self.scores.items()}
        return {
            "epoch": self.epoch,
            "lr": self.lr,
            "train_loss": self.train_loss,
            **scores,
            "best": int(self.best),
            "seconds": self.seconds,
            "graphs_per_second": self.graphs_per_second,
        }


class Observer:
    """Told what happens; the command line draws it, a notebook may ignore it."""

    def batch(self, epoch: int, done: int, batches: int, graphs: int) -> None:
        """``done`` of ``batches`` steps of an epoch are issued; the last one had ``graphs`` graphs."""

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        """An epoch is over."""

    def saved(self, path: Path) -> None:
        """A checkpoint is on the disk."""

    def stepped(self, how: str) -> None:
        """Training is over; its steps were taken on this path: ``recorded``, or ``plain`` and why."""


@dataclass
class _Progress:
    """What a checkpoint holds beside the state of model, optimizer, schedule, loader and generators."""

    epoch: int = 0
    lr: float = 0.0
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    best_score: float | None = None
    best_epoch: int = -1
    done: str | None = None
    history: list[dict[str, float | int]] = field(default_factory=list)


class Trainer:
    """Trains one model.

    Nothing inside an epoch waits for the device: losses and the search for a NaN stay there until its end, or until a
    checkpoint is due.

    Args:
        step: Model, optimizer and objective, as one step.
        train: Batches to train on; its order is part of the checkpoint.
        validation: Batches to choose the best epoch on.
        config: How to train.
        decoder: From outputs to predictions.
        metrics: What is scored after each epoch; the first leads.
        checkpoint: Where the state is kept; None keeps none.
        checkpoint_seconds: How often it is written, at least; 0 writes it after every step.
        identity: What makes the run this run, as plain values; a checkpoint of another one is not resumed.
        processes: The processes that train together.
        observer: Told what happens.
    """

    def __init__(
        self,
        step: TrainingStep | CapturedStep,
        train: GraphLoader,
        validation: GraphLoader,
        *,
        config: TrainingConfig,
        decoder: Decoder,
        metrics: tuple[str, ...],
        checkpoint: Path | None = None,
        checkpoint_seconds: float = 60.0,
        identity: Mapping[str, Any] | None = None,
        processes: Processes | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.step, self.train, self.validation, self.config = step, train, validation, config
        self.decoder, self.metrics = decoder, metrics
        self.checkpoint, self.checkpoint_seconds = checkpoint, checkpoint_seconds
        self.identity = dict(identity or {})
        self.processes = Processes() if processes is None else processes
        self.observer = Observer() if observer is None else observer
        self.metric = METRICS[metrics[0]]
        options = ScheduleOptions(
            lr=config.lr,
            epochs=config.epochs,
            factor=config.factor,
            patience=config.patience,
            min_lr=config.min_lr,
            warmup=config.warmup,
        )
        self.schedule = SCHEDULES[config.schedule](options, self.metric.better)
        self.progress = _Progress(lr=self.schedule.first())
        self.best_state: dict[str, Tensor] = {}
        self._sums = torch.zeros(2, dtype=torch.float64, device=train.store.device)
        self._first_bad = torch.full((), -1, device=train.store.device)

    @property
    def model(self) -> nn.Module:
        """The network that is trained."""
        return self.step.model

    def resume(self) -> None:
        """Go back to where the checkpoint was taken.

        A run that had come to its end goes on if the settings say so now, e.g. with more epochs.
        """
        if self.checkpoint is None:
            raise ValueError("Trainer: there is no checkpoint to resume from; give one.")
        state = read_checkpoint(self.checkpoint)
        _require_same(state["identity"], self.identity, self.checkpoint)
        self.step.load_state_dict(state["step"])
        self.schedule.load_state_dict(state["schedule"])
        self.train.load_state_dict(state["loader"])
        self.best_state = {name: value.clone() for name, value in state["best"].items()}
        self.progress = _Progress(**state["progress"])
        self._sums.copy_(state["sums"])
        self.progress.done = self._reason_to_end()
        restore_random_state(state["random"][min(self.processes.rank, len(state["random"]) - 1)])

    def fit(self) -> list[dict[str, float | int]]:
        """Train to the end and put the best weights into the model; return a row an epoch.

        Raises:
            Interrupted: A signal asked to stop; the state is saved.
            NonFiniteLoss: The loss became NaN or infinite.
        """
        with StopRequest() as stop:
            while self.progress.done is None:
                self._run_epoch(stop)
        if self.best_state:
            self.model.load_state_dict(self.best_state)
        return self.progress.history

    def evaluate(self, loader: GraphLoader) -> tuple[Tensor, Tensor]:
        """Return predictions and targets of a loader's graphs, on the CPU.

        They are in the loader's order; where several processes share it, one process's graphs follow another's.
        """
        self.model.eval()
        outputs, targets = [], []
        with torch.no_grad():
            for batch in loader:
                outputs.append(self.decoder(self.step.forward(batch)))
                targets.append(batch.y)
        pairs = [(torch.cat(outputs).cpu(), torch.cat(targets).cpu())] if outputs else []
        if loader.world_size > 1:
            pairs = [pair for found in self.processes.collect(pairs) for pair in found]
        if not pairs:
            raise ValueError("Trainer: there is nothing to evaluate; the split has no graphs.")
        return torch.cat([predictions for predictions, _ in pairs]), torch.cat([true for _, true in pairs])

    def _run_epoch(self, stop: StopRequest) -> None:
        self.model.train()
        begun = saved = time.monotonic()
        passed = self.progress.epoch_seconds
        graphs, batches = 0, len(self.train)
        for batch in self.train:
            at = self.train.position - 1
            self._take_step(batch, at)
            taken = real_graphs(batch)
            graphs += taken
            self.observer.batch(self.progress.epoch, at + 1, batches, taken)
            now = time.monotonic()
            self.progress.epoch_seconds = passed + now - begun
            due, stopped, late = self._agree(at, stop, now - saved)
            if due or stopped or late:
                self._require_finite()
                self._save()
                saved = time.monotonic()
                if stopped:
                    raise Interrupted(stop.wanted or "a signal to another process")
                if late:
                    break
        self._require_finite()
        self._finish_epoch(begun, passed, graphs)
        due, stopped = self.processes.each_any(
            time.monotonic() - saved >= self.checkpoint_seconds, stop.wanted is not None
        )
        if self.progress.done is not None or due or stopped:
            self._save()
        if self.progress.done is None and stopped:
            raise Interrupted(stop.wanted or "a signal to another process")

    def _agree(self, at: int, stop: StopRequest, since_saved: float) -> tuple[bool, ...]:
        """Return whether to save, whether to stop, and whether time is over: in all processes the same."""
        every = 1 if self.processes.count == 1 or self.checkpoint_seconds == 0 else ASK_EVERY
        if (at + 1) % every:
            return False, False, False
        return self.processes.each_any(
            since_saved >= self.checkpoint_seconds,
            stop.wanted is not None,
            self._out_of_time(self.progress.epoch_seconds),
        )

    def _take_step(self, batch: Batch, at: int) -> None:
        loss, count = self.step(batch, self.progress.lr)
        self._sums += torch.stack([loss, count])
        bad = (self._first_bad < 0) & ~torch.isfinite(loss)
        self._first_bad = torch.where(bad, at, self._first_bad)

    def _require_finite(self) -> None:
        """Refuse to go on, above all to save, after a loss or a weight that is no number."""
        bad = max(self.processes.collect(int(self._first_bad)))
        if bad >= 0:
            what = f"the loss became NaN or infinite in epoch {self.progress.epoch + 1}, batch {bad + 1}"
        elif self.processes.any(not _all_finite(self.model)):
            what = (
                f"the weights became NaN or infinite in epoch {self.progress.epoch + 1}, by batch {self.train.position}"
            )
        else:
            return
        kept = "Nothing was saved"
        if self.checkpoint is not None:
            kept = "No state had been saved yet"
            if self.checkpoint.exists():
                kept = f"The last good state is {self.checkpoint}"
        raise NonFiniteLoss(
            f"{what} of {len(self.train)}. {kept}. Try a lower learning rate (now {self.progress.lr:g}), a lower "
            "gradient_clip, or precision='fp32'; look for targets that are far from the others."
        )

    def _finish_epoch(self, begun: float, passed: float, graphs: int) -> None:
        progress = self.progress
        predictions, targets = self.evaluate(self.validation)
        scores = {name: score(name, predictions, targets).mean for name in self.metrics}
        leading = scores[self.metrics[0]]
        best = self.metric.improves(leading, progress.best_score)
        if best:
            progress.best_score, progress.best_epoch = leading, progress.epoch
            self.best_state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        total = self.processes.sum(self._sums)
        seconds = passed + time.monotonic() - begun
        record = Epoch(
            epoch=progress.epoch,
            lr=progress.lr,
            train_loss=float(total[0] / total[1]) if total[1] > 0 else math.nan,
            scores=scores,
            seconds=round(seconds, 4),
            graphs_per_second=round(graphs * self.processes.count / max(time.monotonic() - begun, 1e-9), 1),
            best=best,
        )
        self._sums.zero_()
        progress.history.append(record.row())
        progress.seconds += seconds
        progress.epoch_seconds = 0.0
        progress.epoch += 1
        progress.lr = self.schedule.step(leading)
        progress.done = self._reason_to_end()
        self.observer.epoch(record, self.config.epochs)

    def _reason_to_end(self) -> str | None:
        config, progress = self.config, self.progress
        if progress.epoch >= config.epochs:
            return f"all {config.epochs} epochs are done"
        if progress.lr < config.stop_lr and config.schedule != "cosine":  # which falls to nothing by plan
            return f"the learning rate fell below {config.stop_lr:g}"
        waited = progress.epoch - 1 - progress.best_epoch
        if config.stop_patience is not None and waited >= config.stop_patience:
            return f"no better validation score for {waited} epochs"
        if self.processes.any(self._out_of_time(0.0)):
            return f"{config.max_time:g} seconds are over"
        return None

    def _out_of_time(self, epoch_seconds: float) -> bool:
        limit = self.config.max_time
        return limit is not None and self.progress.seconds + epoch_seconds >= limit

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        random = self.processes.collect(random_state())
        if self.processes.rank == 0:
            state: dict[str, Any] = {
                "identity": self.identity,
                "step": self.step.state_dict(),
                "schedule": self.schedule.state_dict(),
                "loader": self.train.state_dict(),
                "best": self.best_state,
                "progress": vars(self.progress),
                "sums": self._sums,
                "random": random,
            }
            write_checkpoint(self.checkpoint, state)
            self.observer.saved(self.checkpoint)


def _all_finite(model: nn.Module) -> bool:
    """Whether every weight is a number; waits for the device once."""
    values = [value for value in model.state_dict().values() if value.is_floating_point() and value.numel()]
    return bool(torch.stack(torch._foreach_norm(values, 1)).isfinite().all()) if values else True


def _require_same(found: Mapping[str, Any], own: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint of another run, and say in what they differ."""
    wrong = [f"{name} is {own.get(name)!r}, was {found.get(name)!r}" for name in own if own[name] != found.get(name)]
    if wrong:
        raise ValueError(
            f"{path} is of a run with other settings: {'; '.join(wrong)}. Resume with those that it was started with, "
            "or start anew with --overwrite or in another folder."
        )
