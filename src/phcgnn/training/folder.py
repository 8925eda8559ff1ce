"""The folder of a run: what stands where, and what may be overwritten."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phcgnn.files import write_text

__all__ = ["FIGURES", "REPORT", "RunFolder", "discard_report", "finite", "seed_folders"]

RESULTS = (
    "result.json",
    "model.json",
    "weights.safetensors",
    "start.safetensors",
    "metrics.csv",
    "test_predictions.csv",
)
FOLDERS = ("checkpoints", "log")

REPORT, FIGURES = "report.html", "figures"
"""What :mod:`phcgnn.report` writes into a folder."""


@dataclass(frozen=True)
class RunFolder:
    """One training run on the disk."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """The whole state of the run."""
        return self.path / "checkpoints" / "last"

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "result.json").is_file()

    def require_free(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse a folder that holds what is not to be touched; nothing is changed.

        Raises:
            FileExistsError: The folder holds a run, and neither ``resume`` nor ``overwrite`` says what to do with it,
                or it holds something else.
            NotADirectoryError: It is a file, or lies in one.
        """
        for path in (self.path, *self.path.parents):
            if path.exists() and not path.is_dir():
                raise NotADirectoryError(f"{path} is a file; give a folder for the run.")
        if not self.path.is_dir():
            return
        if not self._known and any(self._foreign()):
            raise FileExistsError(f"{self.path} holds files that are no run's; give a new or an empty folder.")
        if resume or overwrite:
            return
        if self.finished:
            raise FileExistsError(f"{self.path} holds a finished run; give another folder, or --overwrite.")
        if self.checkpoint.exists():
            raise FileExistsError(
                f"{self.path} holds a run that has not ended; continue it with --resume, or give --overwrite."
            )

    def open(self, *, resume: bool, overwrite: bool) -> bool:
        """Make the folder ready; return whether there is a state to resume from."""
        self.require_free(resume=resume, overwrite=overwrite)
        if overwrite and self._known:
            for name in RESULTS:
                (self.path / name).unlink(missing_ok=True)
            for name in FOLDERS:
                shutil.rmtree(self.path / name, ignore_errors=True)
            discard_report(self.path)
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.checkpoint.parent):
            for left in folder.glob(".*.part"):  # of a write that was killed
                left.unlink(missing_ok=True)
        return resume and self.checkpoint.exists()

    def reopen(self) -> None:
        """Note that a finished run goes on."""
        (self.path / "result.json").unlink(missing_ok=True)

    @property
    def _known(self) -> bool:
        """Whether the folder is a run's: its settings are the first thing that is written."""
        return (self.path / "config.toml").is_file()

    def _foreign(self) -> Iterator[Path]:
        """Return what is there beside the traces of a run that was killed before it had written anything."""
        for path in self.path.iterdir():
            empty = path.name in FOLDERS and path.is_dir() and not any(path.iterdir())
            if not empty and not (path.name.startswith(".") and path.suffix == ".part"):
                yield path

    def write_text(self, name: str, text: str) -> None:
        """Write a file, all or nothing."""
        write_text(self.path / name, text)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file, all or nothing."""
        self.write_text(name, json.dumps(finite(value), indent=2, allow_nan=False) + "\n")

    def write_rows(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Write a CSV file, all or nothing."""
        text = io.StringIO()
        if rows:
            writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        self.write_text(name, text.getvalue())

    def append_row(self, name: str, row: Mapping[str, object]) -> None:
        """Add a line to a CSV file that :meth:`write_rows` may rewrite later."""
        path = self.path / name
        new = not path.exists() or path.stat().st_size == 0
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)


def discard_report(path: Path) -> None:
    """Remove a folder's report with its figures; figures without a report are somebody else's and stay."""
    if not (path / REPORT).is_file():
        return
    for figure in (path / FIGURES).glob("*.svg"):
        figure.unlink()
    if (path / FIGURES).is_dir() and not any((path / FIGURES).iterdir()):
        (path / FIGURES).rmdir()
    (path / REPORT).unlink()


def seed_folders(path: Path) -> list[Path]:
    """Return the folders ``seed-0``, ``seed-1``, ... of several runs, finished or not, by their numbers."""
    found = (one for one in path.glob("seed-*") if one.name[5:].isdecimal() and one.is_dir())
    return sorted(found, key=lambda one: int(one.name[5:]))


def finite(value: Any) -> Any:
    """Return what JSON can hold: null for numbers that it has no word for.

    >>> finite({"mae": 1.5, "r2": float("nan")})
    {'mae': 1.5, 'r2': None}
    """
    if isinstance(value, Mapping):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
