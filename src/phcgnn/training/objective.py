"""What training makes small: the task loss over the labels that exist, and the two penalties of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from phcgnn.errors import ShapeError
from phcgnn.nn import rule_penalty, weight_penalty
from phcgnn.training.losses import LOSSES

__all__ = ["Objective", "PenaltyScale"]

PenaltyScale = Literal["lr", "one"]


@dataclass(frozen=True, kw_only=True)
class Objective:
    r"""Task loss and penalties.

    .. math:: L = \frac{\sum_{g,t} w_{gt}\, l(\hat y_{gt}, y_{gt})}{\sum_{g,t} w_{gt}}
              + s\, \big(\lambda_1 L_2(\mathbf{W}) + \lambda_2 L(\mathbf{C})\big)

    where :math:`w_{gt}` is 0 for a gap (NaN, or a class below 0), else the weight of graph g times that of the label
    (:attr:`positive_weights` or :attr:`class_weights`); s is the current learning rate, as the released settings have
    it, or 1, as the paper's formula reads.

    Args:
        loss: A name in :data:`phcgnn.training.losses.LOSSES`.
        lambda1: Factor of :func:`phcgnn.nn.weight_penalty`.
        lambda2: Factor of :func:`phcgnn.nn.rule_penalty`.
        penalty_scale: ``lr`` or ``one``.
        positive_weights: ``(T,)``, how much a yes counts against a no, for each target.
        class_weights: ``(K,)``, how much each class counts.

    >>> objective = Objective(loss="l1")
    >>> loss, count = objective.task(torch.zeros(2, 2), torch.tensor([[1.0, float("nan")], [3.0, 2.0]]))
    >>> loss.item(), count.item()                                  # the sum over three labels
    (6.0, 3.0)
    """

    loss: str
    lambda1: float = 0.0
    lambda2: float = 0.0
    penalty_scale: PenaltyScale = "lr"
    positive_weights: Tensor | None = None
    class_weights: Tensor | None = None

    def __post_init__(self) -> None:
        _ = LOSSES[self.loss]
        for name in ("lambda1", "lambda2"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"Objective: `{name}` must be at least 0, got {value!r}.")
        if self.penalty_scale not in ("lr", "one"):
            raise ValueError(f"Objective: `penalty_scale` must be 'lr' or 'one', got {self.penalty_scale!r}.")

    def task(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of the losses over the labels that exist, and the sum of the weights.

        Shapes:
            - **outputs:** ``(G, T)``, or ``(G, K)`` for classes
            - **targets:** ``(G, T)`` with NaN for gaps, or ``(G,)`` integers, below 0 for gaps
            - **weights:** ``(G,)``
        """
        exists = ~targets.isnan() if targets.is_floating_point() else targets >= 0
        if targets.is_floating_point() and outputs.shape != targets.shape:
            raise ShapeError("Objective: the outputs", got=outputs.shape, expected=targets.shape)
        known = torch.where(exists, targets, torch.zeros_like(targets))
        counts = exists.to(outputs.dtype)
        if weights is not None:
            counts = counts * (weights[:, None] if targets.dim() == 2 else weights)
        if self.positive_weights is not None:
            counts = counts * torch.where(known > 0.5, self.positive_weights.to(outputs), outputs.new_ones(()))
        if self.class_weights is not None:
            counts = counts * self.class_weights.to(outputs)[known]
        losses = LOSSES[self.loss](outputs, known)
        return torch.where(exists, losses * counts, torch.zeros_like(losses)).sum(), counts.sum()

    def penalty(self, model: nn.Module, lr: float | Tensor) -> Tensor | None:
        """Return what the penalties add; None where both factors are 0."""
        parts = []
        if self.lambda1:
            parts.append(self.lambda1 * weight_penalty(model))
        if self.lambda2:
            parts.append(self.lambda2 * rule_penalty(model))
        if not parts:
            return None
        return (lr if self.penalty_scale == "lr" else 1.0) * sum(parts[1:], parts[0])
