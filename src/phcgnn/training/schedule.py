"""Optimizers by name, and how the learning rate falls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn, optim

from phcgnn.registry import Registry

__all__ = ["OPTIMIZERS", "SCHEDULES", "Schedule", "ScheduleOptions", "build_optimizer"]

OPTIMIZERS: Registry[type[optim.Optimizer]] = Registry("optimizer")
OPTIMIZERS.register("adam")(optim.Adam)
OPTIMIZERS.register("adamw")(optim.AdamW)


def build_optimizer(
    name: str, parameters: Iterable[nn.Parameter], *, lr: float, weight_decay: float
) -> optim.Optimizer:
    """Make an optimizer by name; one fused kernel does all parameters."""
    make: Any = OPTIMIZERS[name]
    optimizer: optim.Optimizer = make(
        [p for p in parameters if p.requires_grad], lr=lr, weight_decay=weight_decay, fused=True
    )
    return optimizer


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """What the schedules read; each reads what concerns it.

    Args:
        lr: Where the learning rate starts.
        epochs: Over how many epochs the cosine runs.
        factor: What the learning rate is multiplied with (``plateau``, ``step``).
        patience: Epochs without improvement before it falls (``plateau``), or between falls (``step``).
        min_lr: The learning rate never falls below this (``cosine`` ends there).
        warmup: Epochs of linear rise from nothing (``cosine``), at most half of all, so that a short run falls too.
    """

    lr: float
    epochs: int
    factor: float = 0.5
    patience: int = 10
    min_lr: float = 0.0
    warmup: int = 0


class Schedule:
    """The learning rate of the next epoch, given the validation score of the last: plain numbers only."""

    def __init__(self, options: ScheduleOptions, better: Literal["lower", "higher"]) -> None:
        self.options, self.better = options, better
        self.lr = options.lr
        self.epoch = 0

    def first(self) -> float:
        """Return the learning rate of the first epoch."""
        return self.lr

    def step(self, score: float) -> float:
        """Take note of an epoch's validation score; return the learning rate of the next."""
        self.epoch += 1
        self.lr = self._next(score)
        return self.lr

    def _next(self, score: float) -> float:
        return self.lr

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next step depends on."""
        return {name: value for name, value in vars(self).items() if name not in ("options", "better")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where :meth:`state_dict` was taken."""
        vars(self).update(state)


SCHEDULES: Registry[Callable[[ScheduleOptions, Literal["lower", "higher"]], Schedule]] = Registry("schedule")
SCHEDULES.register("constant")(Schedule)


@SCHEDULES.register("plateau")
class _Plateau(Schedule):
    """Fall by the factor after more than ``patience`` epochs without a better score (as torch's, threshold 1e-4)."""

    threshold = 1e-4

    def __init__(self, options: ScheduleOptions, better: Literal["lower", "higher"]) -> None:
        super().__init__(options, better)
        self.best = math.inf if better == "lower" else -math.inf
        self.waited = 0

    def _next(self, score: float) -> float:
        margin = self.threshold * abs(self.best) if math.isfinite(self.best) else 0.0
        improved = score < self.best - margin if self.better == "lower" else score > self.best + margin
        self.best, self.waited = (score, 0) if improved else (self.best, self.waited + 1)
        if self.waited <= self.options.patience:
            return self.lr
        self.waited = 0
        return max(self.lr * self.options.factor, self.options.min_lr)


@SCHEDULES.register("step")
class _Step(Schedule):
    """Fall by the factor every ``patience`` epochs."""

    def _next(self, score: float) -> float:
        falls = self.epoch // max(self.options.patience, 1)
        return max(self.options.lr * self.options.factor**falls, self.options.min_lr)


@SCHEDULES.register("cosine")
class _Cosine(Schedule):
    """Rise linearly over ``warmup`` epochs, then fall along half a cosine to ``min_lr`` at the last epoch."""

    def first(self) -> float:
        self.lr = self._at(0)
        return self.lr

    def _next(self, score: float) -> float:
        return self._at(self.epoch)

    def _at(self, epoch: int) -> float:
        top, low = self.options.lr, self.options.min_lr
        warmup = min(self.options.warmup, self.options.epochs // 2)
        if epoch < warmup:
            return top * (epoch + 1) / (warmup + 1)
        progress = min((epoch - warmup) / max(self.options.epochs - 1 - warmup, 1), 1.0)
        return low + (top - low) * (1 + math.cos(math.pi * progress)) / 2
