"""Predictions against truth: parity, ROC and precision-recall curves, confusion."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from phcgnn.report.picture import COLOURS, FOREGROUND, Picture, drawing, style
from phcgnn.report.predictions import Predictions
from phcgnn.report.statistics import area, precision_recall_curve, roc_curve

__all__ = ["confusion", "prediction_figures"]

MOST_TARGETS = 6
"""Drawn one by one; a data set may have hundreds."""

MOST_POINTS = 2000
"""Drawn as shapes of their own; more become an image inside the figure."""

CURVE_POINTS = 400


def prediction_figures(found: Predictions, prefix: str = "") -> list[Picture]:
    """Return what shows predictions of this task; the prefix is for the files' names."""
    if found.task == "multiclass":
        return [_confusion_map(found, prefix)]
    if found.task == "classification":
        return _curves(found, prefix)
    return [_parity(found, target, prefix) for target in range(min(found.truth.shape[1], MOST_TARGETS))]


def confusion(found: Predictions) -> npt.NDArray[np.int64]:
    """Return how often a class (row) was taken for a class (column)."""
    classes = found.predicted.shape[1]
    truth = found.truth[:, 0]
    known = ~np.isnan(truth) & (truth >= 0)
    table = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, (truth[known].astype(np.int64), found.predicted[known].argmax(1)), 1)
    return table


def _parity(found: Predictions, target: int, prefix: str) -> Picture:
    truth, predicted = found.truth[:, target], found.predicted[:, target]
    known = ~np.isnan(truth)
    truth, predicted = truth[known], predicted[known]
    name = found.targets[target]
    with drawing(
        f"{prefix}parity-{target + 1}", f"Test set: {name}", "On the line a prediction is right.", (5.0, 4.4)
    ) as (
        figure,
        pictures,
    ):
        axes = figure.subplots()
        many = len(truth) > MOST_POINTS
        axes.plot(
            truth,
            predicted,
            "o",
            color=COLOURS[0],
            markersize=3 if many else 4,
            alpha=0.3 if many else 0.55,
            markeredgewidth=0,
            rasterized=many,
        )
        if len(truth):
            ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
            axes.plot(ends, ends, color=FOREGROUND, linewidth=0.8)
        axes.set_xlabel(f"{name}, true")
        axes.set_ylabel(f"{name}, predicted")
        axes.set_aspect("equal", adjustable="datalim")
    return pictures[0]


def _curves(found: Predictions, prefix: str) -> list[Picture]:
    targets = []
    for target, name in enumerate(found.targets):
        known = ~np.isnan(found.truth[:, target])
        truth, scores = found.truth[known, target], found.predicted[known, target]
        if len(truth) and truth.min() != truth.max():
            targets.append((name, scores, truth))
    left_out = len(found.targets) - min(len(targets), MOST_TARGETS)
    note = f" {left_out} of {len(found.targets)} targets are not drawn." if left_out else ""
    if not targets:
        return []
    with drawing(f"{prefix}roc", "Test set: ROC curves", f"The diagonal is chance.{note}", (5.0, 4.6)) as (
        figure,
        pictures,
    ):
        axes = _square(figure, "false positive rate", "true positive rate")
        for number, (name, scores, truth) in enumerate(targets[:MOST_TARGETS]):
            x, y = roc_curve(scores, truth)
            _line(axes, number, x, y, f"{name}: area {area(x, y):.3f}")
        axes.plot([0, 1], [0, 1], color=FOREGROUND, linewidth=0.8)
        figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    roc = pictures[0]
    caption = f"A short line at the right edge is chance: the share of yes.{note}"
    with drawing(f"{prefix}precision-recall", "Test set: precision and recall", caption, (5.0, 4.6)) as (
        figure,
        pictures,
    ):
        axes = _square(figure, "recall", "precision")
        for number, (name, scores, truth) in enumerate(targets[:MOST_TARGETS]):
            x, y = precision_recall_curve(scores, truth)
            _line(axes, number, x, y, f"{name}: average precision {area(x, y, steps=True):.3f}")
            axes.plot([0.97, 1.02], [truth.mean()] * 2, color=style(number)["color"], linewidth=2.5)
        figure.legend(loc="outside lower center", ncols=1, fontsize=9)
    return [roc, pictures[0]]


def _confusion_map(found: Predictions, prefix: str) -> Picture:
    table = confusion(found)
    classes = len(table)
    of_row = table.sum(1, keepdims=True)
    shares = np.divide(table, of_row, out=np.zeros(table.shape), where=of_row > 0)
    caption = "Rows are the true classes; colour is the share of a row, numbers are counts."
    side = min(8.0, max(4.6, 2.4 + 0.42 * classes))
    with drawing(f"{prefix}confusion", "Test set: which class was taken for which", caption, (side, side)) as (
        figure,
        pictures,
    ):
        from matplotlib.colors import LinearSegmentedColormap

        axes = figure.subplots()
        clear = LinearSegmentedColormap.from_list("clear", [COLOURS[0] + "00", COLOURS[0] + "cc"])
        axes.imshow(shares, cmap=clear, vmin=0, vmax=1, interpolation="none")
        axes.grid(False)
        axes.set_xticks(range(classes), found.targets, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(classes), found.targets)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        if classes <= 12:
            for (row, column), count in np.ndenumerate(table):
                if count:
                    axes.text(column, row, str(count), ha="center", va="center", fontsize=9)
    return pictures[0]


def _square(figure: Any, x: str, y: str) -> Any:
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_aspect("equal")
    return axes


def _line(axes: Any, number: int, x: Any, y: Any, label: str) -> None:
    look = style(number)
    look.pop("marker")
    if len(x) > CURVE_POINTS:
        kept = np.unique(np.linspace(0, len(x) - 1, CURVE_POINTS).astype(np.int64))
        x, y = x[kept], y[kept]
    axes.plot(x, y, label=label, linewidth=1.6, **look)
