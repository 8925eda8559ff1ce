"""The numbers that figures show: sparsity of a weight, spread over seeds, boxes, ROC and precision-recall curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

__all__ = ["Box", "Spread", "area", "box", "precision_recall_curve", "roc_curve", "sparsity", "spread"]

Numbers = npt.NDArray[np.float64]

REACH = 1.5
"""Whiskers end at the last value within so many times the box's height; what lies beyond is drawn by itself."""


def sparsity(weight: Tensor) -> float:
    r"""Return the sparsity of a matrix, as the paper's appendix defines it.

    .. math:: s(\mathbf{U}) = 1 - \frac{1}{kd} \sum_{i=1}^{k} \sum_{j=1}^{d} \lvert \mathbf{U}_{ij} \rvert

    One for the zero matrix, smaller for larger entries, and below zero where they are larger than one on average.

    >>> import torch
    >>> sparsity(torch.tensor([[0.0, -0.5], [0.5, 0.0]]))
    0.75
    """
    return 1.0 - weight.detach().double().abs().mean().item()


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation by epoch, and over how many curves; the deviation of one curve is zero."""

    mean: Numbers
    std: Numbers
    count: npt.NDArray[np.int64]


def spread(curves: Sequence[Sequence[float]]) -> Spread:
    """Aggregate curves of different lengths: each epoch over the curves that have it; NaN counts as not there.

    >>> found = spread([[1.0, 2.0, 5.0], [3.0, 2.0]])
    >>> found.mean.tolist(), found.count.tolist()
    ([2.0, 2.0, 5.0], [2, 2, 1])
    """
    length = max((len(curve) for curve in curves), default=0)
    table = np.full((len(curves), length), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve)] = curve
    there = ~np.isnan(table)
    count = there.sum(0)
    filled = np.where(there, table, 0.0)
    mean = np.divide(filled.sum(0), count, out=np.full(length, np.nan), where=count > 0)
    squares = np.where(there, table - mean, 0.0) ** 2
    std = np.sqrt(np.divide(squares.sum(0), count - 1, out=np.zeros(length), where=count > 1))
    return Spread(mean, std, count)


@dataclass(frozen=True)
class Box:
    """What a box plot draws of some values."""

    low: float
    """End of the lower whisker."""
    first: float
    median: float
    third: float
    high: float
    outliers: tuple[float, ...]


def box(values: Sequence[float]) -> Box:
    """Return quartiles (linearly interpolated), whiskers and outliers.

    >>> box([1, 2, 3, 4, 5, 20])
    Box(low=1.0, first=2.25, median=3.5, third=4.75, high=5.0, outliers=(20.0,))
    """
    if not len(values):
        raise ValueError("box: `values` is empty; there is nothing to draw.")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    first, median, third = (float(value) for value in np.percentile(ordered, [25, 50, 75]))
    reach = REACH * (third - first)
    inside = ordered[(ordered >= first - reach) & (ordered <= third + reach)]
    outside = ordered[(ordered < first - reach) | (ordered > third + reach)]
    return Box(float(inside[0]), first, median, third, float(inside[-1]), tuple(outside.tolist()))


def roc_curve(scores: Numbers, truth: Numbers) -> tuple[Numbers, Numbers]:
    """Return false and true positive rates, from (0, 0) to (1, 1), a point a different score.

    >>> roc_curve(np.array([0.1, 0.4, 0.8]), np.array([0.0, 1.0, 1.0]))
    (array([0., 0., 0., 1.]), array([0. , 0.5, 1. , 1. ]))
    """
    true, false = _counts(scores, truth)
    _require_both(true, false)
    return np.r_[0.0, false / false[-1]], np.r_[0.0, true / true[-1]]


def precision_recall_curve(scores: Numbers, truth: Numbers) -> tuple[Numbers, Numbers]:
    """Return recall, rising, and precision; the point before the first score has recall 0 and precision 1.

    >>> precision_recall_curve(np.array([0.1, 0.4, 0.8]), np.array([0.0, 1.0, 1.0]))
    (array([0. , 0.5, 1. , 1. ]), array([1. , 1. , 1. , 0.66666667]))
    """
    true, false = _counts(scores, truth)
    _require_both(true, false)
    return np.r_[0.0, true / true[-1]], np.r_[1.0, true / (true + false)]


def area(x: Numbers, y: Numbers, *, steps: bool = False) -> float:
    """Return the area under a curve whose x rises: trapezia, or steps as average precision has them.

    >>> area(np.array([0.0, 1.0]), np.array([0.0, 1.0])), area(np.array([0.0, 1.0]), np.array([0.0, 1.0]), steps=True)
    (0.5, 1.0)
    """
    heights = y[1:] if steps else (y[1:] + y[:-1]) / 2
    return float((np.diff(x) * heights).sum())


def _counts(scores: Numbers, truth: Numbers) -> tuple[Numbers, Numbers]:
    """Return how many yes and how many no score at least as much as each different score, the highest first."""
    order = np.argsort(-scores, kind="stable")
    ranked, yes = scores[order], truth[order] > 0.5
    last = np.r_[np.flatnonzero(np.diff(ranked)), len(ranked) - 1] if len(ranked) else np.empty(0, dtype=np.int64)
    true, false = np.cumsum(yes)[last], np.cumsum(~yes)[last]
    return true.astype(np.float64), false.astype(np.float64)


def _require_both(true: Numbers, false: Numbers) -> None:
    if not len(true) or not true[-1] or not false[-1]:
        raise ValueError("a curve over yes and no needs both among the targets; leave this target out.")
