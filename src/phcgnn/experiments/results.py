"""What the runs of a reproduction scored: a line a run, and mean and deviation a row of the paper."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from phcgnn.errors import DataError
from phcgnn.experiments.paper import PaperTable, Published, Row
from phcgnn.experiments.plan import EXTRA_FILE, runs_folder
from phcgnn.experiments.settings import RunSettings, read_settings
from phcgnn.training.folder import RunFolder, seed_folders

__all__ = ["FinishedRun", "RowResult", "Score", "collect", "finished_runs", "results_rows"]

RESULT: dict[str, type | tuple[type, ...]] = {
    "scores": dict,
    "metric": str,
    "parameters": int,
    "best_epoch": int,
    "epochs": int,
    "seconds": (int, float),
    "ended": str,
    "seed": int,
}
"""What ``result.json`` must hold."""


@dataclass(frozen=True)
class FinishedRun:
    """One finished run on the disk."""

    folder: Path

    @cached_property
    def result(self) -> dict[str, Any]:
        """What ``result.json`` holds.

        Raises:
            DataError: It is damaged.
        """
        path = self.folder / "result.json"
        found = _read_json(path)
        for name, kind in RESULT.items():
            if not isinstance(found.get(name), kind):
                raise DataError(f"{path} is damaged (`{name}` is {found.get(name)!r}); train the run again.")
        if not all(isinstance(scores, dict) for scores in found["scores"].values()):
            raise DataError(f"{path} is damaged (`scores` is {found['scores']!r}); train the run again.")
        return found

    @cached_property
    def extra(self) -> dict[str, Any]:
        """Training scores and machine; empty for a run that no reproduction made."""
        path = self.folder / EXTRA_FILE
        return _read_json(path) if path.is_file() else {}

    @cached_property
    def settings(self) -> RunSettings | None:
        """All settings, where the folder has them."""
        path = self.folder / "config.toml"
        return RunSettings.build(read_settings(path)) if path.is_file() else None

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """A row an epoch, from ``metrics.csv``.

        Raises:
            DataError: There is something else than numbers in it.
        """
        path = self.folder / "metrics.csv"
        try:
            with path.open(encoding="utf-8", newline="") as file:
                return [{name: float(text) for name, text in row.items() if text != ""} for row in csv.DictReader(file)]
        except (ValueError, TypeError, csv.Error) as error:
            raise DataError(f"{path} is damaged ({error}); train the run again.") from error

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Graphs in each split, as far as the folder says."""
        path = self.folder / "splits.json"
        splits = _read_json(path) if path.is_file() else {}
        return {name: len(splits[name]) for name in ("train", "val", "test") if isinstance(splits.get(name), list)}

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.result["seed"])

    @property
    def metric(self) -> str:
        """The leading metric."""
        return str(self.result["metric"])

    def score(self, split: str) -> float | None:
        """Return the leading metric on ``train``, ``val`` or ``test``, by the weights of the best epoch."""
        scores = self.extra.get("train") if split == "train" else self.result["scores"].get(split)
        value = None if scores is None else scores.get(self.metric)
        return None if value is None or value != value else float(value)

    @property
    def epoch_seconds(self) -> float | None:
        """Median over the epochs after the first, which may compile; over all of them if there is but one."""
        seconds = [row["seconds"] for row in self.history if "seconds" in row]
        return statistics.median(seconds[1:] or seconds) if seconds else None


@dataclass(frozen=True)
class Score:
    """Mean and deviation over runs, in the paper's units."""

    mean: float
    std: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Score | None:
        """Aggregate; nothing comes of nothing.

        >>> Score.of([0.1, 0.3]).mean, Score.of([0.1]).std, Score.of([])
        (0.2, None, None)
        """
        if not values:
            return None
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None, tuple(values))


@dataclass(frozen=True)
class RowResult:
    """A row of the paper beside its finished runs, which may be none."""

    row: Row
    runs: tuple[FinishedRun, ...]

    def score(self, kind: str) -> Score | None:
        """Aggregate ``train``, ``val``, ``test`` or ``seconds`` over the runs."""
        values = [run.epoch_seconds if kind == "seconds" else run.score(kind) for run in self.runs]
        factor = 100.0 if self.row.group.percent and kind != "seconds" else 1.0
        return Score.of([factor * value for value in values if value is not None])

    def published(self, kind: str) -> Published | None:
        """Return what the paper printed."""
        return self.row.numbers.get(kind)

    def deviations(self, kind: str) -> float | None:
        """Return our mean minus the paper's, in units of the paper's deviation."""
        ours, theirs = self.score(kind), self.published(kind)
        return None if ours is None or theirs is None else theirs.deviations(ours.mean)

    @property
    def parameters(self) -> int | None:
        """Learnable parameters, as counted in the runs."""
        return int(self.runs[0].result["parameters"]) if self.runs else None


def collect(table: PaperTable, out: Path) -> list[RowResult]:
    """Return every row of a table with the finished runs that a folder holds for it."""
    prefix = "timing-" if table.timing else ""
    return [RowResult(row, tuple(finished_runs(runs_folder(out) / f"{prefix}{row.name}"))) for row in table.rows]


def finished_runs(folder: Path) -> list[FinishedRun]:
    """Return the finished runs under a row's folder, by seed."""
    return [FinishedRun(path) for path in seed_folders(folder) if RunFolder(path).finished]


def results_rows(table: PaperTable, results: Sequence[RowResult]) -> list[dict[str, object]]:
    """Return the lines of ``results.csv``: one a run, ours and the paper's numbers in plain units, never in percent."""
    rows = []
    for result in results:
        for run in result.runs:
            kinds = ("seconds",) if table.timing else table.splits
            theirs = {kind: result.published(kind) for kind in kinds}
            unit = 100.0 if result.row.group.percent and not table.timing else 1.0
            rows.append(
                {
                    "table": table.name,
                    "row": result.row.name,
                    "model": result.row.label,
                    "data": result.row.group.title,
                    "seed": run.seed,
                    "parameters": run.result["parameters"],
                    "metric": run.metric,
                    **{split: _blank(run.score(split)) for split in ("train", "val", "test")},
                    "best_epoch": run.result["best_epoch"] + 1,
                    "epochs": run.result["epochs"],
                    "seconds": run.result["seconds"],
                    "seconds_per_epoch": _blank(run.epoch_seconds),
                    "ended": run.result["ended"],
                    "device": run.extra.get("device", ""),
                    **_paper_columns(theirs, unit),
                    "folder": f"{run.folder.parent.name}/{run.folder.name}",
                }
            )
    return rows


def _paper_columns(numbers: Mapping[str, Published | None], unit: float) -> dict[str, float | str]:
    def plain(value: float | None) -> float | str:
        return "" if value is None else round(value / unit, 6)

    columns: dict[str, float | str] = {}
    for kind in ("train", "val", "test", "seconds"):
        number = numbers.get(kind)
        columns[f"paper_{kind}"] = plain(None if number is None else number.mean)
        if kind != "seconds":
            columns[f"paper_{kind}_std"] = plain(None if number is None else number.std)
    return columns


def _blank(value: float | None) -> float | str:
    return "" if value is None else value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); train the run again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged (it holds {content!r}, no object); train the run again.")
    return content
