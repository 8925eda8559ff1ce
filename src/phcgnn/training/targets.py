"""What is known of the training targets before training: their scale, and how rare each class is."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from phcgnn.data.metadata import Task

__all__ = ["Decoder", "Scaler", "class_weights", "graph_weights", "positive_weights"]


@dataclass(frozen=True)
class Scaler:
    """Mean and deviation of each target; the network works with what is left when both are taken out.

    >>> scaler = Scaler.fit(torch.tensor([[1.0], [3.0], [float("nan")]]))
    >>> scaler
    Scaler(mean=(2.0,), deviation=(1.0,))
    >>> scaler.restore(scaler.apply(torch.tensor([[7.0]])))
    tensor([[7.]])
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def fit(cls, targets: Tensor) -> Scaler:
        """Measure ``(G, T)`` targets, gaps left out; a target that never varies keeps its scale."""
        exists = ~targets.isnan()
        count = exists.sum(0).clamp_min(1)
        known = torch.where(exists, targets, 0.0).double()
        mean = known.sum(0) / count
        variance = (torch.where(exists, known - mean, 0.0) ** 2).sum(0) / count
        deviation = torch.where(variance > 0, variance.sqrt(), 1.0)
        return cls(tuple(mean.tolist()), tuple(deviation.tolist()))

    def apply(self, targets: Tensor) -> Tensor:
        """Bring targets to mean 0 and deviation 1."""
        mean, deviation = self.tensors(targets.device, targets.dtype)
        return (targets - mean) / deviation

    def restore(self, outputs: Tensor) -> Tensor:
        """Bring outputs of the network to the scale of the targets."""
        mean, deviation = self.tensors(outputs.device, outputs.dtype)
        return outputs * deviation + mean

    def tensors(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return mean and deviation on a device: the same tensors again and again, as long as they are in use.

        >>> Scaler((2.0,), (1.0,)).tensors(torch.device("cpu"), torch.float32)
        (tensor([2.]), tensor([1.]))
        """
        return _as_tensors(self, device, dtype)


@functools.lru_cache(maxsize=8)
def _as_tensors(scaler: Scaler, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Kept, for bringing them to a GPU in every step would make the step wait."""
    with torch.inference_mode(False):
        mean = torch.tensor(scaler.mean, dtype=dtype, device=device)
        return mean, torch.tensor(scaler.deviation, dtype=dtype, device=device)


@dataclass(frozen=True)
class Decoder:
    """From what the network returns to what a reader wants: real values, probabilities of yes, or of each class."""

    task: Task
    scaler: Scaler | None = None

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Decoder:
        """Read what ``model.json`` says of the task and the normalisation."""
        scale = metadata.get("normalisation")
        scaler = None if scale is None else Scaler(tuple(scale["mean"]), tuple(scale["deviation"]))
        return cls(metadata["task"], scaler)

    def __call__(self, outputs: Tensor) -> Tensor:
        """Decode ``(G, T)`` or ``(G, K)``."""
        outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
        if self.task == "classification":
            return outputs.sigmoid()
        if self.task == "multiclass":
            return outputs.softmax(1)
        return outputs if self.scaler is None else self.scaler.restore(outputs)


def positive_weights(targets: Tensor) -> Tensor:
    """Return, for each yes/no target, how many times rarer yes is than no; 1 where either is missing.

    >>> positive_weights(torch.tensor([[1.0], [0.0], [0.0], [0.0], [float("nan")]]))
    tensor([3.])
    """
    yes, no = (targets == 1).sum(0), (targets == 0).sum(0)
    return torch.where((yes > 0) & (no > 0), no / yes.clamp_min(1), 1.0)


def class_weights(targets: Tensor, classes: int) -> Tensor:
    """Return a weight a class, so that all classes that occur count alike and the average graph counts 1.

    >>> class_weights(torch.tensor([0, 0, 0, 1]), 3)
    tensor([0.6667, 2.0000, 0.0000])
    """
    counts = torch.bincount(targets[targets >= 0], minlength=classes)
    occurring = int((counts > 0).sum())
    return torch.where(counts > 0, counts.sum() / (max(occurring, 1) * counts.clamp_min(1)), 0.0)


def graph_weights(targets: Tensor, classes: int | None) -> Tensor:
    """Return how often to draw each graph so that yes and no, or all classes, are seen alike often.

    With several yes/no targets, a graph's weight is the mean over the labels that it has.
    """
    if not targets.is_floating_point():
        weights = class_weights(targets, classes or int(targets.max()) + 1)
        return torch.where(targets >= 0, weights[targets.clamp_min(0)], 1.0)
    yes = positive_weights(targets)
    exists = ~targets.isnan()
    # a label is drawn in inverse proportion to how common it is; scaled so that the average label counts 1
    labels = torch.where(targets > 0.5, (1 + yes) / 2, (1 + 1 / yes) / 2)
    mean = torch.where(exists, labels, 0.0).sum(1) / exists.sum(1).clamp_min(1)
    return torch.where(exists.any(1), mean, 1.0)
