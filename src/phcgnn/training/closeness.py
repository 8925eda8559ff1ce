"""How far the fast path may be from the plain one, and from float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from phcgnn.training.config import Precision

__all__ = ["NOTHING", "TOLERANCES", "Tolerance", "distance", "limit_of", "require_close"]

FARTHER = 10.0
"""The fast path may lie this many times as far from float64 as the plain one: both round, and each by chance."""

MOST = 0.5
"""What lies this far from float64 can be compared with nothing: zeros would lie no farther than twice as far. And no
limit lies beyond this, or beyond twice as far as the plain path is off."""

NOTHING = 1e-6
"""A gradient of less than this share of all of them is nothing but rounding, and may as well be 0."""


@dataclass(frozen=True)
class Tolerance:
    """How far is not far, relative: for the loss, and for all gradients as one vector."""

    loss: float
    gradient: float


TOLERANCES: dict[Precision, Tolerance] = {
    "fp32": Tolerance(1e-4, 3e-2),
    "tf32": Tolerance(1e-2, 1e-1),
    "bf16": Tolerance(5e-2, 2e-1),
}
"""Rounding decides on which side of 0 a ReLU or a residual of the L1 loss falls, and the gradient then jumps: in
float32 that of 16 layers is off by some thousandths, by more where one of few graphs changes sides; the loss is not."""


def distance(found: list[Tensor], expected: list[Tensor]) -> float:
    """Return the relative distance of all tensors as one vector; waits for the device."""
    differences = [(a.double() - b.double()).norm() for a, b in zip(found, expected, strict=True)]
    off, size = (float(torch.stack(n).norm()) for n in (differences, [b.double().norm() for b in expected]))
    return off / size if size else (math.inf if off else off)


def limit_of(what: str, off: float, tolerance: float) -> float:
    """Return how far the fast path may be off where the plain one is off by a distance; zeros are off by 1."""
    if not off < MOST:
        raise ArithmeticError(f"the plain path's {what} itself is off by {off:.2g}, so nothing can be compared")
    return min(max(FARTHER * off, tolerance), max(2 * off, MOST))


def require_close(what: str, found: list[Tensor], expected: list[Tensor], limit: float) -> None:
    """Require that tensors, as one vector, are no farther apart than a limit; waits for the device."""
    off = distance(found, expected)
    if not off <= limit:
        raise ArithmeticError(f"{what} is off by {off:.2g} of itself, allowed are {limit:.2g}")
