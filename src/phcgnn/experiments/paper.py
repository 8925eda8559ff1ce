"""What the paper printed: its tables by name, row by row, read from ``paper.toml``."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from phcgnn.configuration import require_known
from phcgnn.experiments.settings import RunSettings, Settings, merge, read_preset

__all__ = ["Group", "OtherMethod", "PaperTable", "Published", "Row", "paper_tables"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Published:
    """One printed number and its deviation, in the paper's units, and the table that prints it.

    >>> round(Published(78.18, 0.94, "Table 1").deviations(79.12), 3)
    1.0
    """

    mean: float
    std: float | None
    source: str

    def deviations(self, value: float) -> float | None:
        """Return how far a value lies from this one, in units of the paper's deviation."""
        return (value - self.mean) / self.std if self.std else None


@dataclass(frozen=True)
class Group:
    """Rows that are scored alike and stand together: a data set at one budget.

    Attributes:
        name: The preset names' part before ``-phc``.
        title: For people.
        score: What the paper calls the metric.
        percent: Whether the paper prints a hundred times the metric.
        digits: As printed.
        runs: How many the paper averages.
    """

    name: str
    title: str
    score: str
    percent: bool
    digits: int
    runs: int

    def show(self, mean: float | None, std: float | None = None) -> str:
        """Write a score in the paper's units and digits.

        >>> Group("zinc-400k", "ZINC", "MAE", False, 3, 4).show(0.1641, 0.003)
        '0.164 ± 0.003'
        """
        if mean is None or mean != mean:
            return "-"
        text = f"{mean:.{self.digits}f}"
        return text if std is None else f"{text} ± {std:.{self.digits}f}"


@dataclass(frozen=True)
class Row:
    """One row of the paper: what is trained for it, and what was printed.

    Attributes:
        name: The preset's name, and what is changed in it.
        preset: The preset.
        group: Where it belongs.
        changes: Settings over the preset's.
        numbers: By ``train``, ``val``, ``test`` or ``seconds``.
        parameters: As printed.
    """

    name: str
    preset: str
    group: Group
    changes: Settings
    numbers: Mapping[str, Published]
    parameters: str | None

    @property
    def variant(self) -> str:
        """The model's part of the name.

        >>> next(row.variant for row in paper_tables()["table2"].rows)
        'phc-1'
        """
        return f"phc-{self.preset.partition('-phc')[2]}"

    @property
    def label(self) -> str:
        """The model's name in the paper.

        >>> [row.label for row in paper_tables()["large-n"].rows]
        ['PHC-8', 'PHC-8-†']
        """
        label = self.variant.upper().replace("-DAGGER", "-†").replace("-STAR", "-*")
        factor = self.changes.get("training", {}).get("lambda2")
        return label if factor is None else f"{label}, λ₂ = {factor:.0e}".replace("e-0", "e-")

    def answers_to(self, model: str) -> bool:
        """Whether ``--models`` means this row: ``phc-1``, ``PHC1``, ``phc-8-dagger`` or a row's full name."""
        return model == self.name or _plain(model) == _plain(self.variant)

    def settings(self) -> Settings:
        """Return all settings of the row, as merged from its preset and its changes."""
        return merge([read_preset(self.preset), self.changes])


@dataclass(frozen=True)
class OtherMethod:
    """A row of another method, as the paper quotes it."""

    name: str
    group: Group
    numbers: Mapping[str, Published]
    parameters: str | None


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper.

    Attributes:
        name: As on the command line.
        source: Its number and LaTeX label.
        splits: What it prints.
        timing: Whether it prints seconds an epoch and no scores.
        boxes: Rows that the paper draws as boxes.
        notes: What a reader of the comparison should know.
    """

    name: str
    title: str
    source: str
    splits: tuple[str, ...]
    timing: bool
    rows: tuple[Row, ...]
    others: tuple[OtherMethod, ...]
    boxes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of its rows, in order."""
        return tuple(dict.fromkeys(row.group for row in self.rows))

    def select(self, models: Sequence[str]) -> tuple[Row, ...]:
        """Return the rows that are meant; all of them if no model is named.

        >>> [row.name for row in paper_tables()["table2"].select(["phc-16"])]
        ['zinc-100k-phc16', 'zinc-400k-phc16']
        """
        for model in models:
            if not any(row.answers_to(model) for row in self.rows):
                known = dict.fromkeys(name for row in self.rows for name in (row.variant, row.name))
                require_known(f"{self.name}: --models", "model", model, known)
        return tuple(row for row in self.rows if not models or any(row.answers_to(model) for model in models))


@functools.cache
def paper_tables() -> dict[str, PaperTable]:
    """Return every table by name.

    >>> list(paper_tables())
    ['table1', 'table2', 'table3', 'shallow', 'dropout', 'large-n', 'lambda2', 'timing', 'vision', 'ppa']
    """
    text = (resources.files("phcgnn.experiments") / "paper.toml").read_text(encoding="utf-8")
    return read_tables(tomllib.loads(text))


def read_tables(content: Mapping[str, Any]) -> dict[str, PaperTable]:
    """Build the tables from what the file holds."""
    groups = {name: Group(name, **entry) for name, entry in content["groups"].items()}
    numbers: dict[str, dict[str, Published]] = {}
    parameters: dict[str, str] = {}
    for entry in content["tables"].values():
        for name, row in entry["rows"].items():
            for kind, value in _numbers(row, entry["source"]).items():
                if kind in numbers.setdefault(name, {}):
                    raise ValueError(f"paper.toml: {name}: `{kind}` stands in two tables; leave it to the first.")
                numbers[name][kind] = value
            if "parameters" in row:
                parameters.setdefault(name, row["parameters"])
    return {
        name: PaperTable(
            name=name,
            title=entry["title"],
            source=f"{entry['source']} ({entry['label']})",
            splits=tuple(entry["splits"]),
            timing=entry.get("timing", False),
            rows=tuple(_row(key, row, groups, numbers[key], parameters) for key, row in entry["rows"].items()),
            others=tuple(
                OtherMethod(method, groups[group], _numbers(row, entry["source"]), row.get("parameters"))
                for group, methods in entry.get("others", {}).items()
                for method, row in methods.items()
            ),
            boxes=tuple(entry.get("boxes", ())),
            notes=tuple(entry.get("notes", ())),
        )
        for name, entry in content["tables"].items()
    }


def _row(
    name: str,
    entry: Mapping[str, Any],
    groups: Mapping[str, Group],
    numbers: Mapping[str, Published],
    parameters: Mapping[str, str],
) -> Row:
    preset = name.partition("-lambda2-")[0]
    changes: Settings = {"training": {"lambda2": entry["lambda2"]}} if "lambda2" in entry else {}
    RunSettings.build(merge([read_preset(preset), changes]))
    group = groups[preset.partition("-phc")[0]]
    return Row(name, preset, group, changes, numbers, parameters.get(name, parameters.get(preset)))


def _numbers(entry: Mapping[str, Any], source: str) -> dict[str, Published]:
    scores = {split: (*entry[split], None)[:2] for split in SPLITS if split in entry}
    if "seconds" in entry:
        scores["seconds"] = (entry["seconds"], None)
    return {kind: Published(mean, std, source) for kind, (mean, std) in scores.items()}


def _plain(model: str) -> str:
    return re.sub(r"[-_ ]", "", model.lower().replace("†", "dagger").replace("*", "star"))
