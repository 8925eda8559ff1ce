"""Scores of predictions: exact, gaps left out, each target by itself and their average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torchmetrics.functional as tm
from torch import Tensor

from phcgnn.registry import Registry

__all__ = ["METRICS", "TASK_METRICS", "Metric", "Score", "score"]


@dataclass(frozen=True)
class Metric:
    """One way to score.

    Args:
        compute: ``(outputs, targets) -> score`` for one target without gaps: outputs are real, probabilities of yes, or
            ``(N, K)`` probabilities of classes.
        better: Which way is better.
        both: Whether the score needs a yes and a no among the targets.
    """

    compute: Callable[[Tensor, Tensor], Tensor]
    better: Literal["lower", "higher"]
    both: bool = False

    def improves(self, new: float, best: float | None) -> bool:
        """Whether a score is better than the best so far; NaN never is."""
        if new != new:
            return False
        return best is None or (new < best if self.better == "lower" else new > best)


METRICS: Registry[Metric] = Registry("metric")

TASK_METRICS = {
    "regression": ("mae", "rmse", "r2"),
    "classification": ("roc_auc", "average_precision", "accuracy", "f1", "mcc"),
    "multiclass": ("accuracy", "f1", "mcc"),
}
"""What each task is scored with; the first leads unless the data set names another."""


def _file(
    name: str, better: Literal["lower", "higher"], both: bool = False
) -> Callable[[Callable[[Tensor, Tensor], Tensor]], None]:
    def file(compute: Callable[[Tensor, Tensor], Tensor]) -> None:
        METRICS.register(name)(Metric(compute, better, both))

    return file


@_file("mae", "lower")
def _mae(outputs: Tensor, targets: Tensor) -> Tensor:
    return tm.mean_absolute_error(outputs, targets)


@_file("rmse", "lower")
def _rmse(outputs: Tensor, targets: Tensor) -> Tensor:
    return tm.mean_squared_error(outputs, targets, squared=False)


@_file("r2", "higher")
def _r2(outputs: Tensor, targets: Tensor) -> Tensor:
    return tm.r2_score(outputs, targets) if len(targets) > 1 else outputs.new_tensor(float("nan"))


@_file("roc_auc", "higher", both=True)
def _roc_auc(outputs: Tensor, targets: Tensor) -> Tensor:
    return tm.classification.binary_auroc(outputs, targets.long())


@_file("average_precision", "higher", both=True)
def _average_precision(outputs: Tensor, targets: Tensor) -> Tensor:
    return tm.classification.binary_average_precision(outputs, targets.long())


@_file("accuracy", "higher")
def _accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return (_decide(outputs) == targets.long()).to(outputs.dtype).mean()


@_file("f1", "higher")
def _f1(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of yes; for classes the mean over the classes that occur."""
    if outputs.dim() == 1:
        return tm.classification.binary_f1_score(outputs, targets.long())
    return tm.classification.multiclass_f1_score(outputs, targets, num_classes=outputs.shape[1], average="macro")


@_file("mcc", "higher", both=True)
def _mcc(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.dim() == 1:
        decided = _decide(outputs)  # torchmetrics has a small number where all decisions are one; scikit-learn has 0
        found = tm.classification.binary_matthews_corrcoef(decided, targets.long())
        return found * (decided != decided[0]).any()
    return tm.classification.multiclass_matthews_corrcoef(outputs, targets, num_classes=outputs.shape[1])


def _decide(outputs: Tensor) -> Tensor:
    return (outputs > 0.5).long() if outputs.dim() == 1 else outputs.argmax(1)


@dataclass(frozen=True)
class Score:
    """A metric's value: the mean over the targets that can be scored, and each of them (NaN where it cannot)."""

    mean: float
    by_target: tuple[float, ...]


def score(name: str, outputs: Tensor, targets: Tensor) -> Score:
    """Score predictions with a metric of :data:`METRICS`.

    Shapes:
        - **outputs:** ``(N, T)``, probabilities for yes/no targets; ``(N, K)`` probabilities for classes
        - **targets:** ``(N, T)`` with NaN for gaps, or ``(N,)`` classes, below 0 for gaps

    >>> import torch
    >>> score("mae", torch.tensor([[1.0, 5.0], [2.0, 6.0]]), torch.tensor([[2.0, float("nan")], [2.0, 9.0]]))
    Score(mean=1.75, by_target=(0.5, 3.0))
    """
    metric = METRICS[name]
    if not targets.is_floating_point():
        pairs = [(outputs[targets >= 0], targets[targets >= 0])]
    else:
        exists = ~targets.isnan()
        pairs = [(outputs[m, t], targets[m, t]) for t, m in enumerate(exists.unbind(1))]
    values = []
    for predicted, true in pairs:
        scorable = len(true) > 0 and not (metric.both and bool((true == true[0]).all()))
        values.append(metric.compute(predicted, true).item() if scorable else float("nan"))
    scored = [value for value in values if value == value]
    return Score(sum(scored) / len(scored) if scored else float("nan"), tuple(values))
