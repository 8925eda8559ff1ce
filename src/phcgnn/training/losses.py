"""Task losses, an entry at a time: gaps and ghosts are left out later, by :mod:`phcgnn.training.objective`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from phcgnn.registry import Registry

__all__ = ["LOSSES", "TASK_LOSS", "TASK_LOSSES", "Loss"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""``(outputs, targets) -> losses``. Real and yes/no targets: all of shape (G, T). Classes: (G, K), (G,) -> (G,)."""

LOSSES: Registry[Loss] = Registry("loss")

TASK_LOSSES = {
    "regression": ("l1", "mse", "huber"),
    "classification": ("bce", "focal"),
    "multiclass": ("cross_entropy", "focal"),
}
"""What fits a task."""

TASK_LOSS = {task: losses[0] for task, losses in TASK_LOSSES.items()}
"""What a task is trained with unless another loss is asked for."""

FOCUS = 2.0
"""Exponent of the focal loss (Lin et al., 2017)."""


@LOSSES.register("l1")
def _l1(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs()


@LOSSES.register("mse")
def _mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square()


@LOSSES.register("huber")
def _huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """Quadratic up to a residual of 1 (one standard deviation, where targets are standardised), then linear."""
    return F.huber_loss(outputs, targets, reduction="none")


@LOSSES.register("bce")
def _bce(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


@LOSSES.register("cross_entropy")
def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


@LOSSES.register("focal")
def _focal(outputs: Tensor, targets: Tensor) -> Tensor:
    r"""Cross entropy times :math:`(1 - p)^\gamma`, with p the probability given to what is true."""
    if targets.is_floating_point():
        loss = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    else:
        loss = F.cross_entropy(outputs, targets, reduction="none")
    return (-torch.expm1(-loss)) ** FOCUS * loss
