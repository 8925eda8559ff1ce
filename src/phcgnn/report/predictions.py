"""What a run predicted on its test set, from ``test_predictions.csv``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from phcgnn.errors import DataError
from phcgnn.experiments.results import FinishedRun
from phcgnn.models.folder import load_model

__all__ = ["Predictions", "read_predictions"]

FILE = "test_predictions.csv"

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """Predictions on a test set.

    Attributes:
        task: ``regression``, ``classification`` or ``multiclass``.
        targets: Their names; the classes' for ``multiclass``.
        truth: NaN for gaps. Class numbers for ``multiclass``.
        predicted: Real, or probabilities.
        names: What each row is called: its id, or its number in the data.
        smiles: Of each row, where the data have them.

    Shapes:
        - **truth:** ``(N, T)``; ``(N, 1)`` for ``multiclass``
        - **predicted:** ``(N, T)``; ``(N, K)`` for ``multiclass``
    """

    task: str
    targets: tuple[str, ...]
    truth: Numbers
    predicted: Numbers
    names: tuple[str, ...]
    smiles: tuple[str, ...] | None

    @property
    def errors(self) -> Numbers:
        """One number a row, the larger the worse; NaN where nothing is known of it.

        Regression: the mean over the targets of the absolute error, in units of a target's deviation if there are
        several. Classification: the mean of the distance of probability and truth. Classes: one minus the probability
        of the right one.
        """
        if self.task == "multiclass":
            classes = self.truth[:, 0]
            known = ~np.isnan(classes) & (classes >= 0)
            right = self.predicted[np.arange(len(classes)), np.where(known, classes, 0).astype(np.int64)]
            return np.where(known, 1.0 - right, np.nan)
        apart = np.abs(self.predicted - self.truth)
        if self.task == "regression" and self.truth.shape[1] > 1:
            apart = apart / np.array([_deviation(column) for column in self.truth.T])
        there = ~np.isnan(apart)
        total = np.where(there, apart, 0.0).sum(1)
        return np.divide(total, there.sum(1), out=np.full(len(apart), np.nan), where=there.any(1))

    @property
    def error_name(self) -> str:
        """What :attr:`errors` are called."""
        if self.task == "multiclass":
            return "1 - probability of the right class"
        if self.task == "classification":
            return "|probability - truth|"
        return "absolute error" if self.truth.shape[1] == 1 else "absolute error in deviations"


def read_predictions(run: FinishedRun) -> Predictions | None:
    """Return what a run predicted; None where it has no test set, or predicts nodes."""
    path = run.folder / FILE
    if not path.is_file() or not path.stat().st_size:
        return None
    about = load_model(run.folder).metadata
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return _parse(rows, about)
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{path} is damaged ({error}); train the run again to get a report of its predictions."
        ) from error


def _parse(rows: list[dict[str, str]], about: Mapping[str, Any]) -> Predictions:
    task, targets = str(about["task"]), tuple(about["targets"])
    outputs = targets
    columns = [f"{name}_predicted" for name in targets]
    if task == "multiclass":
        prefix = f"{targets[0]}_"
        columns = [name for name in rows[0] if name.startswith(prefix) and name.endswith("_predicted")]
        outputs = tuple(about.get("classes") or (name[len(prefix) : -len("_predicted")] for name in columns))
    return Predictions(
        task,
        outputs,
        np.array([[_number(row[f"{name}_true"]) for name in targets] for row in rows]),
        np.array([[_number(row[name]) for name in columns] for row in rows]),
        tuple(row.get("id") or row["graph"] for row in rows),
        tuple(row["smiles"] for row in rows) if "smiles" in rows[0] else None,
    )


def _number(text: str) -> float:
    return float(text) if text else np.nan


def _deviation(values: Numbers) -> float:
    known = values[~np.isnan(values)]
    found = float(known.std()) if len(known) else 0.0
    return found or 1.0
