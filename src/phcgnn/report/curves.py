"""Learning curves by model, with the spread over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from phcgnn.experiments.results import FinishedRun
from phcgnn.report.picture import Picture, drawing, style
from phcgnn.report.statistics import spread

__all__ = ["describe", "learning_curves", "scale"]

SCALED = 20
"""Fewer values than these are shown all."""

NAMES = {
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "f1": "F1",
    "mcc": "MCC",
}


def learning_curves(
    name: str, title: str, models: Mapping[str, Sequence[FinishedRun]], column: str, *, factor: float = 1.0
) -> Picture | None:
    """Draw a column of ``metrics.csv`` by epoch, a line a model; None if no run has it.

    Args:
        name: Of the file.
        title: Of the figure.
        models: The runs of each model, one a seed.
        column: E.g. ``train_loss`` or ``val_mae``.
        factor: 100 where the paper prints percent.
    """
    curves = {
        label: spread([[factor * row.get(column, np.nan) for row in run.history] for run in runs])
        for label, runs in models.items()
    }
    curves = {label: curve for label, curve in curves.items() if curve.count.any()}
    if not curves:
        return None
    several = any(curve.count.max() > 1 for curve in curves.values())
    caption = "Mean over the runs that reached an epoch; the band is one standard deviation." if several else ""
    means = np.concatenate([curve.mean for curve in curves.values()])
    ends = scale(means[~np.isnan(means)])
    if ends is not None:
        caption += " Some epochs lie outside of the scale."
    with drawing(name, title, caption.strip(), (6.0, 3.6 + 0.2 * _legend_rows(curves))) as (figure, pictures):
        axes = figure.subplots()
        for number, (label, curve) in enumerate(curves.items()):
            look = style(number)
            marker = look.pop("marker")
            epochs = np.arange(1, len(curve.mean) + 1)
            axes.plot(epochs, curve.mean, label=label, linewidth=1.6, marker=marker if len(epochs) < 3 else "", **look)
            if curve.count.max() > 1:
                band = curve.mean - curve.std, curve.mean + curve.std
                axes.fill_between(epochs, *band, color=look["color"], alpha=0.18, linewidth=0)
        axes.set_xlabel("epoch")
        axes.set_ylabel(describe(column) + (" (%)" if factor == 100.0 else ""))
        if ends is not None:
            axes.set_ylim(*ends)
        if len(curves) > 1:
            figure.legend(loc="outside lower center", ncols=min(len(curves), 4), fontsize=9)
    return pictures[0]


def describe(column: str) -> str:
    """Return a column of ``metrics.csv`` in words.

    >>> describe("val_roc_auc"), describe("train_loss")
    ('validation ROC-AUC', 'training loss')
    """
    known = {"train_loss": "training loss", "lr": "learning rate"}
    if column in known:
        return known[column]
    metric = column.removeprefix("val_")
    return f"validation {NAMES.get(metric, metric)}"


def scale(values: np.ndarray) -> tuple[float, float] | None:
    """Return the ends of a scale that a few far values shall not stretch; None where none do.

    >>> scale(np.array([9.0, *[1.0, 1.25, 1.5, 2.0] * 9]))
    (1.0, 2.5)
    >>> scale(np.linspace(0.0, 1.0, 50)) is None
    True
    """
    if len(values) < SCALED:
        return None
    low, high = float(values.min()), float(values.max())
    bottom, tenth, ninetieth, top = (float(value) for value in np.percentile(values, [5, 10, 90, 95]))
    above, below = ninetieth - bottom, top - tenth
    ends = (
        tenth - below / 2 if tenth - low > 2 * below > 0 else low,
        ninetieth + above / 2 if high - ninetieth > 2 * above > 0 else high,
    )
    return None if ends == (low, high) else ends


def _legend_rows(curves: Mapping[str, object]) -> int:
    return 0 if len(curves) < 2 else -(-len(curves) // 4)
