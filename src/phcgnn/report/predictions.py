"""What a run predicted on its test set, from ``test_predictions.csv``."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from phcgnn.errors import DataError
from phcgnn.experiments.results import FinishedRun
from phcgnn.models.folder import ModelFolderError, load_model

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
        apart = self.apart
        there = ~np.isnan(apart)
        total = np.where(there, apart, 0.0).sum(1)
        return np.divide(total, there.sum(1), out=np.full(len(apart), np.nan), where=there.any(1))

    @cached_property
    def apart(self) -> Numbers:
        """The error of each target that :attr:`errors` is the mean of, ``(N, T)``; not for ``multiclass``."""
        apart = np.abs(self.predicted - self.truth)
        if self.task == "regression" and self.truth.shape[1] > 1:
            apart = apart / np.array([_deviation(column) for column in self.truth.T])
        return apart

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
    try:
        about = load_model(run.folder).metadata
    except ModelFolderError as error:
        raise DataError(f"{error} Without it {path} cannot be read; train the run again.") from error
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return _parse(csv.reader(file), about)
    except (KeyError, ValueError, IndexError, csv.Error) as error:
        raise DataError(
            f"{path} is damaged ({error}); train the run again to get a report of its predictions."
        ) from error


def _parse(rows: Iterator[list[str]], about: Mapping[str, Any]) -> Predictions | None:
    """Read row by row into flat numbers; as dictionaries a table of many targets would take gigabytes."""
    task, targets = str(about["task"]), tuple(about["targets"])
    places = {name: place for place, name in enumerate(next(rows, []))}
    outputs = targets
    columns = [f"{name}_predicted" for name in targets]
    if task == "multiclass":
        prefix = f"{targets[0]}_"
        columns = [name for name in places if name.startswith(prefix) and name.endswith("_predicted")]
        outputs = tuple(about.get("classes") or (name[len(prefix) : -len("_predicted")] for name in columns))
    true_at, predicted_at = [places[f"{name}_true"] for name in targets], [places[name] for name in columns]
    graph, identity, molecule = places["graph"], places.get("id"), places.get("smiles")
    truth, predicted, names, smiles = array("d"), array("d"), list[str](), list[str]()
    for row in rows:
        truth.extend([_number(row[place]) for place in true_at])
        predicted.extend([_number(row[place]) for place in predicted_at])
        names.append((row[identity] if identity is not None else "") or row[graph])
        if molecule is not None:
            smiles.append(row[molecule])
    if not names:
        return None
    return Predictions(
        task,
        outputs,
        np.array(truth).reshape(len(names), -1),
        np.array(predicted).reshape(len(names), -1),
        tuple(names),
        None if molecule is None else tuple(smiles),
    )


def _number(text: str) -> float:
    return float(text) if text else np.nan


def _deviation(values: Numbers) -> float:
    known = values[~np.isnan(values)]
    found = float(known.std()) if len(known) else 0.0
    return found or 1.0
