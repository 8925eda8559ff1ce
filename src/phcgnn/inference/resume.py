"""What an interrupted prediction has written: how far its rows are whole, and whether they are of this input."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from phcgnn.data.molecules.readers import LARGEST_CELL
from phcgnn.data.molecules.rows import Row
from phcgnn.errors import DataError
from phcgnn.inference.columns import Columns

__all__ = ["Written", "whole_rows"]

_AGREE = 1e-3
"""Other machines and batch sizes round differently; another model is further off than this."""


def whole_rows(file: BinaryIO) -> tuple[int, int]:
    r"""Return how many rows of a CSV are whole, its header among them, and behind which byte the last one ends.

    A row is whole where a line ends and every quotation mark has its partner; whatever a kill has cut off is not.

    >>> import io
    >>> whole_rows(io.BytesIO(b'a,b\n1,"x\ny"\n2,"z\n'))
    (2, 12)
    """
    rows = position = end = marks = 0
    for line in file:
        position += len(line)
        marks += line.count(b'"')
        if line.endswith(b"\n") and marks % 2 == 0:
            rows, end = rows + 1, position
    return rows, end


class Written:
    """The whole rows of an output, read one after the other and compared with the input's. A context manager.

    Args:
        path: The output; what follows its last whole row is cut off.
        columns: The columns it has to have.
        gaps: Whether rows that cannot be predicted may be missing (``--on-invalid skip``).
    """

    def __init__(self, path: Path, columns: Columns, *, gaps: bool) -> None:
        self.path, self.columns, self.gaps = path, columns, gaps
        with path.open("rb") as file:
            whole, end = whole_rows(file)
        self.rows = max(whole - 1, 0)
        """How many rows of data were there."""
        self._file = path.open("r", newline="", encoding="utf-8", errors="replace")
        csv.field_size_limit(max(csv.field_size_limit(), LARGEST_CELL))
        reader = csv.reader(self._file)
        if whole and next(reader) != columns.header:
            self._file.close()
            raise DataError(
                f"{path}: its columns are not those that this input and model give; predict into another file, or "
                "start anew with --overwrite."
            )
        self._reader = itertools.islice(reader, self.rows)
        self._next = next(self._reader, None)
        with path.open("r+b") as file:
            file.truncate(end if whole else 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def exhausted(self) -> bool:
        """Whether every row has been taken."""
        return self._next is None

    def take(self, rows: Sequence[Row]) -> list[list[str] | None]:
        """Return what was written for these rows of the input, as long as there is anything; None for a row left out.

        Raises:
            DataError: What was written is not of these rows.
        """
        taken: list[list[str] | None] = []
        for row in rows:
            if self._next is None:
                break
            own, added = self._next[: self.columns.width], self._next[self.columns.width :]
            if own == self.columns.own(row) and not (self.gaps and row.problem):
                taken.append(added)
                self._next = next(self._reader, None)
            elif self.gaps:
                taken.append(None)
            else:
                raise DataError(
                    f"{self.path}: it was not written for this input: row {row.number} of the input is not what stands "
                    "there (or it was written with another --on-invalid). Give the same input, or predict into another "
                    "file."
                )
        if self._next is None:
            while taken and taken[-1] is None:
                taken.pop()
        return taken

    def require_end(self) -> None:
        """Refuse an output with more rows than the input."""
        if self._next is not None:
            raise DataError(
                f"{self.path}: it was not written for this input, which ends before what stands there does. Give the "
                "same input, or predict into another file."
            )

    def require_left_out(self, row: Row, now: Sequence[str]) -> None:
        """Refuse an output without a row that can be predicted."""
        if not now[-1]:
            raise DataError(
                f"{self.path}: it was not written for this input and model: row {row.number} of the input is missing "
                "there. Give the same, or predict into another file."
            )

    def require_same(self, row: Row, before: Sequence[str], now: Sequence[str]) -> None:
        """Refuse predictions that another model has made: beyond rounding, what was written is not what is found."""
        if not all(map(_agree, before[:-1], now[:-1])) or bool(before[-1]) != bool(now[-1]):
            raise DataError(
                f"{self.path}: it was written by another model: for row {row.number} of the input there stands "
                f"{', '.join(before)!r}, and this model says {', '.join(now)!r}. Give the same model, or predict into "
                "another file."
            )


def _agree(before: str, now: str) -> bool:
    if before == now:
        return True
    try:
        return math.isclose(float(before), float(now), rel_tol=_AGREE, abs_tol=1e-6)
    except ValueError:
        return False
