"""Rows of any table of molecules, one after the other: CSV, TSV, SMI, SDF or Parquet, gzipped or not, or a pipe."""

from __future__ import annotations

import difflib
import gzip
import itertools
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

__all__ = ["Format", "Row", "RowChunk", "Rows", "find_column", "find_smiles", "open_rows", "stream_rows"]

Format = Literal["csv", "smi", "sdf", "parquet"]
Source = str | Path | BinaryIO

_SUFFIXES: dict[str, Format] = {
    **{".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv"},
    **{".smi": "smi", ".smiles": "smi", ".ism": "smi"},
    **{".sdf": "sdf", ".sd": "sdf", ".mol": "sdf"},
    **{".parquet": "parquet", ".pq": "parquet"},
}


@dataclass(slots=True)
class Row:
    """A row as it stands in the file.

    Args:
        number: Its number among the rows of data, from 1.
        line: The line on which it ends, from 1; None where the file is not made of lines.
        cells: One text a column, "" for nothing. More or fewer than the columns only where ``problem`` says so.
        problem: What is wrong with the row as a whole; "" where nothing is.
    """

    number: int
    line: int | None
    cells: list[str]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows in a run, with what is needed to read them: what a prediction takes at a time."""

    columns: tuple[str, ...]
    smiles_column: str
    rows: list[Row]

    @property
    def smiles(self) -> list[str]:
        """The SMILES of every row, "" where there is none."""
        index = self.columns.index(self.smiles_column)
        return [row.cells[index].strip() if index < len(row.cells) else "" for row in self.rows]


class Rows:
    """An open table: its columns, and its rows as an iterator that reads on as it is asked. A context manager.

    Empty rows count and are handed over, with a ``problem``; those behind the last row of data do not.

    Args:
        name: What the table is called in messages.
        columns: The names of the columns, in order.
        rows: The rows.
        smiles: The column that holds the molecule, where the format fixes it.
        empty_molecules: Whether an empty SMILES is a molecule without atoms, and no gap.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        rows: Iterable[Row],
        *,
        smiles: str | None = None,
        empty_molecules: bool = False,
    ) -> None:
        self.name = name
        self.columns = tuple(columns)
        self.smiles = smiles
        self.empty_molecules = empty_molecules
        self._rows = _without_tail(name, rows)
        self.stack = ExitStack()

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()


Reader = Callable[[str, BinaryIO, ExitStack, str | None], Rows]


def open_rows(source: Source, *, format: Format | None = None, delimiter: str | None = None) -> Rows:
    r"""Open a table of molecules.

    Args:
        source: A path, ``"-"`` for standard input, or a file opened in binary mode. Gzip is recognised by its content.
        format: What it is (default: by the ending of the name; CSV where there is none).
        delimiter: Of a CSV (default: the one of comma, tab and semicolon that the header has most of).

    >>> import io
    >>> with open_rows(io.BytesIO(b"smiles;y\nCCO;1,5\n")) as rows:
    ...     rows.columns, [row.cells for row in rows]
    (('smiles', 'y'), [['CCO', '1,5']])
    """
    from phcgnn.data.molecules.readers import READERS, open_binary

    name = "standard input" if source == "-" else str(getattr(source, "name", "input")) if _is_file(source) else source
    suffixes = [suffix.lower() for suffix in Path(str(name)).suffixes if suffix.lower() != ".gz"]
    kind = format or (_SUFFIXES.get(suffixes[-1]) if suffixes and source != "-" else "csv")
    if kind not in READERS:
        raise ValueError(
            f"{name}: no table is known by this ending; use one of {', '.join(sorted(_SUFFIXES))} (also .gz), "
            f"or say format= one of {', '.join(READERS)}."
        )
    if delimiter is not None and kind != "csv":
        raise ValueError(f"{name}: `delimiter` is for CSV, and this is {kind.upper()}; leave it out.")
    if delimiter is not None and len(delimiter) != 1:
        raise ValueError(f"{name}: `delimiter` must be one character, got {delimiter!r}.")
    with ExitStack() as stack, _whole(str(name)):
        rows = READERS[kind](str(name), open_binary(source, stack), stack, delimiter)
        rows.stack = stack.pop_all()
    return rows


def stream_rows(
    source: Source,
    *,
    chunk: int = 1024,
    smiles_column: str | None = None,
    format: Format | None = None,
    delimiter: str | None = None,
) -> Iterator[RowChunk]:
    r"""Yield a table a chunk of rows at a time, every row and every column of it, in order and in bounded memory.

    >>> import io
    >>> for part in stream_rows(io.BytesIO(b"id,smiles\na,CCO\nb,C\nc,CC\n"), chunk=2):
    ...     part.rows[0].number, part.smiles
    (1, ['CCO', 'C'])
    (3, ['CC'])
    """
    if chunk < 1:
        raise ValueError(f"stream_rows: `chunk` must be at least 1, got {chunk}.")
    with open_rows(source, format=format, delimiter=delimiter) as rows:
        column = find_smiles(rows, smiles_column)
        iterator = iter(rows)
        while part := list(itertools.islice(iterator, chunk)):
            yield RowChunk(rows.columns, column, part)


def find_smiles(rows: Rows, column: str | None) -> str:
    """Return the column that holds the molecules: the one named, or the one that is plain to see."""
    if column is not None:
        return rows.columns[find_column(rows.name, rows.columns, column)]
    if rows.smiles is not None:
        return rows.smiles
    found = [name for name in rows.columns if name.strip().casefold() == "smiles"]
    if len(found) == 1:
        return found[0]
    raise ValueError(
        f"{rows.name}: which column holds the SMILES? {_listed(rows.columns)} "
        f"Name it with smiles_column= (--smiles-column)."
    )


def find_column(name: str, columns: Sequence[str], column: str) -> int:
    """Return the place of a column, or say which there are.

    >>> find_column("t.csv", ["smiles", "logS"], "logs")
    Traceback (most recent call last):
    ValueError: t.csv: there is no column 'logs'. Its columns are 'smiles', 'logS'. Did you mean 'logS'?
    """
    columns = [unicodedata.normalize("NFC", other) for other in columns]  # ö is one letter, or an o and two dots
    column = unicodedata.normalize("NFC", column)
    count = sum(other == column for other in columns)
    if count == 1:
        return columns.index(column)
    if count > 1:
        raise ValueError(f"{name}: {count} columns are called {column!r}; rename all but one.")
    folded = {other.strip().casefold(): other for other in columns}
    close = difflib.get_close_matches(column.strip().casefold(), folded, n=1)
    hint = f" Did you mean {folded[close[0]]!r}?" if close else ""
    raise ValueError(f"{name}: there is no column {column!r}. {_listed(columns)}{hint}")


def _listed(columns: Sequence[str]) -> str:
    shown = ", ".join(repr(column) for column in columns[:50])
    more = f" and {len(columns) - 50} more" if len(columns) > 50 else ""
    return f"Its columns are {shown}{more}."


def _is_file(source: Source) -> bool:
    return not isinstance(source, str | Path)


def _without_tail(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Leave out the empty rows behind the last row of data: they are how a file ends, and no rows."""
    held: list[Row] = []
    source = iter(rows)
    while True:
        with _whole(name):
            row = next(source, None)
        if row is None:
            return
        if row.problem == EMPTY:
            held.append(row)
            continue
        yield from held
        held.clear()
        yield row


@contextmanager
def _whole(name: str) -> Iterator[None]:
    """Say in one line what a file cut short, or with something else behind its end, is."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name}: the gzip file is damaged or cut off: {error}. Fetch or write it again.") from None


EMPTY = "the row is empty"
