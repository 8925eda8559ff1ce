"""Rows that cannot be used: all of them, each with its number, its value and the reason."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phcgnn.data.molecules.quiet import shorten
from phcgnn.errors import DataError

__all__ = ["BadRow", "InvalidRowsError", "OnInvalid", "save_bad_rows"]

OnInvalid = Literal["error", "skip", "defer"]
"""``error``: stop and list them all. ``skip``: leave them out and list them. ``defer``: leave them out and list them
for whoever takes the table next, who has to say ``error`` or ``skip``."""

_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used.

    Args:
        row: Its number among the rows of data, from 1; the header is not counted, empty rows are.
        line: The line of the file on which it ends, from 1, where the file is made of lines.
        column: The column that is at fault, where it is one.
        value: What stands there, shortened.
        reason: What is wrong with it.

    >>> str(BadRow(3, 4, "y", "high", "not a number"))
    "row 3 (line 4), column 'y': 'high': not a number"
    """

    row: int
    line: int | None
    column: str | None
    value: str
    reason: str

    def __str__(self) -> str:
        place = f"row {self.row}" + (f" (line {self.line})" if self.line is not None else "")
        column = f", column {self.column!r}" if self.column is not None else ""
        return f"{place}{column}: {shorten(self.value)!r}: {self.reason}"


class InvalidRowsError(DataError):
    """Rows that cannot be used, where the caller did not say that they may be skipped, or no others are left.

    Args:
        source: Which table.
        bad: All of them; ``error.bad`` in turn.
        total: The number of rows of the table.
    """

    def __init__(self, source: str, bad: Sequence[BadRow], total: int) -> None:
        self.source, self.bad, self.total = source, tuple(bad), total
        rows = len({row.row for row in bad})
        lines = [f"{source}: {rows:,} of {total:,} rows cannot be used:"]
        lines += [f"  {row}" for row in self.bad[:_SHOWN]]
        if len(self.bad) > _SHOWN:
            lines.append(
                f"  ... and {len(self.bad) - _SHOWN:,} more; `.bad` has them all, `save_bad_rows` writes them."
            )
        remedy = "Mend them, or leave them out with on_invalid='skip' (--on-invalid skip)."
        lines.append(remedy if rows < total else "No row is left to use. Mend them.")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[InvalidRowsError], tuple[str, tuple[BadRow, ...], int]]:
        return type(self), (self.source, self.bad, self.total)


def save_bad_rows(bad: Sequence[BadRow], path: str | Path) -> None:
    """Write the rows to a CSV file: row, line, column, value, reason."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "line", "column", "value", "reason"])
        for row in bad:
            writer.writerow([row.row, "" if row.line is None else row.line, row.column or "", row.value, row.reason])
