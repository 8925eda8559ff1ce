"""The folder of a run: what stands where, and what may be overwritten."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phcgnn.files import write_text

__all__ = ["RunFolder"]


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

    def open(self, *, resume: bool, overwrite: bool) -> bool:
        """Make the folder ready; return whether there is a state to resume from.

        Raises:
            FileExistsError: The folder holds a run, and neither ``resume`` nor ``overwrite`` says what to do with it.
        """
        if overwrite and self.path.is_dir():
            written = ("model.json", "weights.safetensors", "start.safetensors", "metrics.csv", "test_predictions.csv")
            for name in ("result.json", *written):
                (self.path / name).unlink(missing_ok=True)
            for name in ("checkpoints", "log"):
                shutil.rmtree(self.path / name, ignore_errors=True)
        elif self.finished and not resume:
            raise FileExistsError(f"{self.path} holds a finished run; give another folder, or --overwrite.")
        elif self.checkpoint.exists() and not resume:
            raise FileExistsError(
                f"{self.path} holds a run that has not ended; continue it with --resume, or give --overwrite."
            )
        elif (
            self.path.is_dir() and not resume and any(self.path.iterdir()) and not (self.path / "config.toml").exists()
        ):
            raise FileExistsError(f"{self.path} holds files that are no run's; give a new or an empty folder.")
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        return resume and self.checkpoint.exists()

    def write_text(self, name: str, text: str) -> None:
        """Write a file, all or nothing."""
        write_text(self.path / name, text)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file, all or nothing."""
        self.write_text(name, json.dumps(value, indent=2) + "\n")

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
