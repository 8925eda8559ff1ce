"""A table to train on: its molecules and labels, checked, and every row that cannot be used."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from phcgnn.data.metadata import NO_CLASS, Task
from phcgnn.data.molecules.invalid import BadRow, InvalidRowsError, OnInvalid
from phcgnn.data.molecules.labels import class_name, class_names, is_gap, parse_label, parse_number
from phcgnn.data.molecules.quiet import shorten
from phcgnn.data.molecules.rows import Format, find_column, find_smiles, open_rows

__all__ = ["MoleculeTable", "make_table", "read_table"]

SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class MoleculeTable:
    """The rows of a table that can be used, and a list of those that cannot.

    Args:
        name: What it is called in messages.
        task: What is predicted.
        targets: One name a target.
        smiles: One text a molecule.
        y: ``(G, T)`` float32 with NaN for gaps; ``(G,)`` int64 with -100 for gaps for ``multiclass``.
        rows: ``(G,)``: the number of each row in the source, from 1.
        lines: ``(G,)``: its line, 0 where there are no lines.
        ids: One text a molecule, or None.
        weights: ``(G,)`` float32, or None.
        split: ``"train"``, ``"val"`` or ``"test"`` of each molecule, or None.
        classes: For ``multiclass``: the name of each class.
        bad: The rows that were left out.
        total: How many rows there were.
        settled: Whether the caller has agreed to leave ``bad`` out.
    """

    name: str
    task: Task
    targets: tuple[str, ...]
    smiles: list[str]
    y: npt.NDArray[Any]
    rows: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    ids: list[str] | None = None
    weights: npt.NDArray[np.float32] | None = None
    split: list[str] | None = None
    classes: tuple[str, ...] | None = None
    bad: tuple[BadRow, ...] = ()
    total: int = 0
    settled: bool = False
    smiles_column: str | None = None

    def __len__(self) -> int:
        """Count the rows that can be used."""
        return len(self.smiles)

    def without(self, bad: Sequence[tuple[int, BadRow]], on_invalid: OnInvalid) -> MoleculeTable:
        """Leave further rows out, given by their places here, or stop, as ``on_invalid`` says."""
        pending = () if self.settled else self.bad
        found = sorted((*pending, *(row for _, row in bad)), key=lambda row: row.row)
        if on_invalid == "error" and found:
            raise InvalidRowsError(self.name, found, self.total)
        keep = np.ones(len(self), dtype=bool)
        keep[[place for place, _ in bad]] = False
        everything = tuple(sorted((*self.bad, *(row for _, row in bad)), key=lambda row: row.row))
        left = self.take(np.flatnonzero(keep)) if bad else self
        return replace(left, bad=everything, settled=on_invalid != "defer")

    def take(self, places: npt.NDArray[np.int64]) -> MoleculeTable:
        """Return the table of some of the rows, in the order given; what was bad stays listed."""
        chosen = places.tolist()
        return replace(
            self,
            smiles=[self.smiles[i] for i in chosen],
            y=self.y[places],
            rows=self.rows[places],
            lines=self.lines[places],
            ids=None if self.ids is None else [self.ids[i] for i in chosen],
            weights=None if self.weights is None else self.weights[places],
            split=None if self.split is None else [self.split[i] for i in chosen],
        )

    def bad_row(self, place: int, column: str | None, value: str, reason: str) -> BadRow:
        """Describe the row at a place of this table as bad."""
        return BadRow(int(self.rows[place]), int(self.lines[place]) or None, column, shorten(value), reason)

    def __repr__(self) -> str:
        targets = ", ".join(self.targets[:4]) + (", ..." if len(self.targets) > 4 else "")
        return f"MoleculeTable({self.name!r}, {len(self):,} molecules, {self.task}: {targets}; {len(self.bad):,} bad)"


def read_table(
    source: str | Path | BinaryIO,
    *,
    target_columns: str | Sequence[str],
    smiles_column: str | None = None,
    task: Task = "regression",
    weight_column: str | None = None,
    id_column: str | None = None,
    split_column: str | None = None,
    on_invalid: OnInvalid = "error",
    format: Format | None = None,
    delimiter: str | None = None,
) -> MoleculeTable:
    r"""Read a table to train on: CSV, TSV, SMI, SDF or Parquet, gzipped or not, or ``"-"`` for standard input.

    Every cell that is asked for is checked, and the SMILES are parsed too unless ``on_invalid`` is ``"defer"``, where
    that is left to :func:`phcgnn.data.molecules.table_to_store`, which parses them anyway. A gap in a target is legal;
    an empty SMILES is not, unless it comes from an SDF.

    Args:
        source: A path, ``"-"``, or a file opened in binary mode.
        target_columns: The columns to predict.
        smiles_column: (default: the one called smiles, in any case; an SDF and an SMI need none)
        task: ``regression``: numbers. ``classification``: 0 or 1, true or false, yes or no. ``multiclass``: one column
            of whole numbers or names.
        weight_column: How much a row counts: at least 0, no gaps.
        id_column: A name for the molecule.
        split_column: train, val (or valid, validation) or test.
        on_invalid: What to do when rows cannot be used: ``"error"`` or ``"skip"``; ``"defer"`` as above.
        format: (default: by the ending of the name)
        delimiter: (default: comma, tab or semicolon, as the header has it)

    >>> import io
    >>> file = io.BytesIO(b"smiles,logS\nCCO,1.1\nC1CC,2\nCC,high\n")
    >>> table = read_table(file, target_columns="logS", on_invalid="skip")
    >>> table.smiles, table.y.tolist(), [row.reason for row in table.bad]
    (['CCO'], [[1.100000023841858]], ['not a SMILES that RDKit can read', 'not a number'])
    """
    targets = (target_columns,) if isinstance(target_columns, str) else tuple(target_columns)
    with open_rows(source, format=format, delimiter=delimiter) as rows:
        smiles_at = find_column(rows.name, rows.columns, find_smiles(rows, smiles_column))
        targets_at = [find_column(rows.name, rows.columns, target) for target in targets]
        others = (weight_column, id_column, split_column)
        weight_at, id_at, split_at = (None if c is None else find_column(rows.name, rows.columns, c) for c in others)
        checker = _Checker(
            rows.name, task, targets, (rows.columns[smiles_at], weight_column, split_column), rows.empty_molecules
        )
        for row in rows:
            if row.problem:
                value = "" if not any(row.cells) else ",".join(row.cells)
                checker.refuse(row.number, row.line, None, value, row.problem)
                continue
            cells = row.cells
            checker.add(
                row.number,
                row.line,
                cells[smiles_at],
                [cells[at] for at in targets_at],
                None if weight_at is None else cells[weight_at],
                None if id_at is None else cells[id_at],
                None if split_at is None else cells[split_at],
            )
    return _settle(checker.table(), on_invalid)


def make_table(
    smiles: Iterable[str],
    targets: Mapping[str, Iterable[Any]],
    *,
    task: Task = "regression",
    weights: Iterable[float] | None = None,
    ids: Iterable[str] | None = None,
    split: Iterable[str] | None = None,
    on_invalid: OnInvalid = "error",
    name: str = "table",
) -> MoleculeTable:
    """Make a table of Python lists, checked as :func:`read_table` checks a file; rows are numbered from 1.

    Any iterable will do: lists, arrays, the columns of a data frame. None and NaN are gaps. ``""`` is a molecule
    without atoms.

    >>> make_table(["CCO", "C"], {"logS": [1.1, None], "logP": [0, 1]}).y.tolist()
    [[1.100000023841858, 0.0], [nan, 1.0]]
    """
    columns = {"smiles": list(smiles), **{f"targets[{key!r}]": list(values) for key, values in targets.items()}}
    for key, values in {"weights": weights, "ids": ids, "split": split}.items():
        if values is not None:
            columns[key] = ["" if value is None else value for value in values]
    lengths = {key: len(values) for key, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{name}: all columns must be of one length, got {lengths}.")
    checker = _Checker(name, task, tuple(targets), ("smiles", "weights", "split"), True)
    nothing: Iterable[Any] = itertools.repeat(None)
    rows = zip(
        columns["smiles"],
        zip(*(columns[f"targets[{key!r}]"] for key in targets), strict=True) if targets else nothing,
        columns.get("weights", nothing),
        columns.get("ids", nothing),
        columns.get("split", nothing),
        strict=False,
    )
    for number, (text, labels, weight, identity, part) in enumerate(rows, 1):
        checker.add(number, None, text, labels, weight, identity, part)
    return _settle(checker.table(), on_invalid)


@dataclass
class _Checker:
    """Takes rows one by one, and sorts them into good and bad."""

    name: str
    task: Task
    targets: tuple[str, ...]
    columns: tuple[str, str | None, str | None]
    empty_molecules: bool
    total: int = 0
    bad: list[BadRow] = field(default_factory=list)
    smiles: list[str] = field(default_factory=list)
    classes: list[Any] = field(default_factory=list)
    numbers: array[float] = field(default_factory=lambda: array("d"))  # of all targets, row by row
    places: array[int] = field(default_factory=lambda: array("q"))
    weights: array[float] = field(default_factory=lambda: array("d"))
    ids: list[str] = field(default_factory=list)
    split: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.task not in ("regression", "classification", "multiclass"):
            raise ValueError(
                f"{self.name}: `task` must be regression, classification or multiclass, got {self.task!r}."
            )
        if not self.targets:
            raise ValueError(f"{self.name}: name at least one target column.")
        if self.task == "multiclass" and len(self.targets) > 1:
            raise ValueError(f"{self.name}: multiclass has one target column, got {len(self.targets)}; train one each.")
        doubled = {target for target in self.targets if self.targets.count(target) > 1}
        if doubled:
            raise ValueError(f"{self.name}: target columns are named twice: {', '.join(sorted(doubled))}.")

    def refuse(self, number: int, line: int | None, column: str | None, value: object, reason: str) -> None:
        if not self.bad or self.bad[-1].row != number:
            self.total += 1
        self.bad.append(BadRow(number, line, column, shorten(value), reason))

    def add(
        self, number: int, line: int | None, smiles: Any, labels: Sequence[Any], weight: Any, identity: Any, split: Any
    ) -> None:
        problems: list[tuple[str | None, object, str]] = []
        text = smiles.strip() if isinstance(smiles, str) else smiles
        if not isinstance(text, str):
            gap = is_gap(text)
            problems.append((self.columns[0], "" if gap else text, "no SMILES" if gap else "a SMILES is a text"))
        elif not text and not self.empty_molecules:
            problems.append((self.columns[0], "", "no SMILES"))
        values: list[Any] = []
        parse: Callable[[object], Any] = _PARSERS[self.task]
        for target, label in zip(self.targets, labels, strict=True):
            try:
                values.append(parse(label))
            except ValueError as error:
                problems.append((target, label, str(error)))
        weight_value = 1.0
        if weight is not None:
            try:
                weight_value = parse_number(weight)
                if not weight_value >= 0:
                    raise ValueError("a weight is a number of at least 0")
            except ValueError as error:
                problems.append((self.columns[1], weight, str(error)))
        part = None
        if split is not None:
            part = SPLIT_NAMES.get(str(split).strip().casefold())
            if part is None:
                problems.append((self.columns[2], split, "not a part of a split: write train, val or test"))
        if problems:
            for column, value, reason in problems:
                self.refuse(number, line, column, value, reason)
            return
        self.total += 1
        self.smiles.append(text)
        (self.classes if self.task == "multiclass" else self.numbers).extend(values)
        self.places.extend((number, line or 0))
        if weight is not None:
            self.weights.append(weight_value)
        if identity is not None:
            self.ids.append(str(identity))
        if part is not None:
            self.split.append(part)

    def table(self) -> MoleculeTable:
        if not self.total:
            raise ValueError(f"{self.name}: the table has no rows, only a header.")
        classes = None
        if self.task == "multiclass":
            classes = class_names([label for label in self.classes if label is not None])
            index = {name: number for number, name in enumerate(classes)}
            numbers = [NO_CLASS if label is None else index[class_name(label)] for label in self.classes]
            y: npt.NDArray[Any] = np.array(numbers, dtype=np.int64)
        else:
            y = np.array(self.numbers, dtype=np.float32).reshape(-1, len(self.targets))
        places = np.array(self.places, dtype=np.int64).reshape(-1, 2)
        return MoleculeTable(
            name=self.name,
            task=self.task,
            targets=self.targets,
            smiles=self.smiles,
            y=y,
            rows=places[:, 0],
            lines=places[:, 1],
            ids=self.ids or None,
            weights=np.array(self.weights, dtype=np.float32) if self.weights else None,
            split=self.split or None,
            classes=classes,
            bad=tuple(self.bad),
            total=self.total,
            smiles_column=self.columns[0],
        )


def _class(cell: object) -> object:
    return None if is_gap(cell) else cell


_PARSERS: dict[Task, Callable[[object], Any]] = {
    "regression": parse_number,
    "classification": parse_label,
    "multiclass": _class,
}


def _settle(table: MoleculeTable, on_invalid: OnInvalid) -> MoleculeTable:
    if on_invalid not in ("error", "skip", "defer"):
        raise ValueError(f"{table.name}: `on_invalid` must be error, skip or defer, got {on_invalid!r}.")
    if on_invalid == "defer":
        return table
    return table.without(unreadable(table), on_invalid)


def unreadable(table: MoleculeTable) -> list[tuple[int, BadRow]]:
    """Return the places of the SMILES that RDKit cannot read, described."""
    from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles, why_unreadable

    with quiet_rdkit():
        places = [place for place, text in enumerate(table.smiles) if read_smiles(text) is None]
    return [
        (place, table.bad_row(place, table.smiles_column, table.smiles[place], why_unreadable(table.smiles[place])))
        for place in places
    ]
