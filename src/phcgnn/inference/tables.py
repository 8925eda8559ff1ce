"""Predictions for a table of any length: rows in, the same rows out with a column a target, in bounded memory."""

from __future__ import annotations

import itertools
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Literal

from phcgnn.errors import DataError
from phcgnn.inference.columns import Columns, csv_line
from phcgnn.inference.predictor import CHUNK, Predictor

if TYPE_CHECKING:
    from phcgnn.data.molecules import Row
    from phcgnn.inference.resume import Written

__all__ = ["InvalidMolecule", "Report", "predict_table", "require_apart", "require_output"]

OnInvalid = Literal["keep", "skip", "error"]

Counter = Callable[[int], None]
"""Told how many rows are done."""

SYNC_SECONDS = 5.0
"""What was written is on the disk, and not only on its way there, this often."""

_OTHER_FORMATS = (".gz", ".parquet", ".pq", ".sdf", ".sd", ".mol", ".smi", ".smiles", ".ism", ".tsv", ".tab")


class InvalidMolecule(DataError):
    """A row that cannot be predicted, where that was to stop the work."""


@dataclass(frozen=True)
class Report:
    """What became of the rows.

    Args:
        rows: Read and predicted now.
        written: Written now.
        invalid: Of ``rows``, those that cannot be predicted.
        resumed: Rows that an interrupted run had written before.
    """

    rows: int
    written: int
    invalid: int
    resumed: int = 0


def predict_table(
    predictor: Predictor,
    source: str | Path | BinaryIO,
    output: str | Path | IO[str],
    *,
    smiles_column: str | None = None,
    on_invalid: OnInvalid = "keep",
    resume: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    chunk: int | None = None,
    progress: Counter = lambda rows: None,
) -> Report:
    """Predict for every row of a table and write the rows with the predictions beside them.

    The input's columns and the order of rows stay. A column a target is added (the value, or the probability of yes;
    for classes the likeliest one and a column a class), with several models ``<target>_std`` too, and ``error``. A name
    that the input has already gets ``_predicted`` behind it.

    An interrupted output holds whole rows and at most a piece of one behind them. ``resume`` cuts that off, compares
    what stands there with the input row by row, predicts the last chunk again to see that the model is the same, and
    goes on: on the same machine the file ends byte-equal to that of an uninterrupted run.

    Args:
        predictor: The model.
        source: CSV, Parquet, SMI or SDF; ``"-"`` for standard input.
        output: A CSV file, or an open text.
        smiles_column: (default: the one called smiles)
        on_invalid: What happens to rows that cannot be predicted: ``keep`` leaves the prediction empty and says why in
            ``error``, ``skip`` leaves them out, ``error`` stops.
        resume: Go on where an interrupted output stopped, or begin where there is none.
        overwrite: Replace an output that is there.
        workers: Processes that make graphs.
        chunk: Rows at a time. (default: 512, or a forward pass where that is more)
        progress: Told after each chunk how many rows are done.
    """
    from phcgnn.data.molecules.rows import find_smiles, open_rows
    from phcgnn.inference.resume import Written

    if on_invalid not in ("keep", "skip", "error"):
        raise ValueError(f"predict: `on_invalid` must be keep, skip or error, got {on_invalid!r}.")
    require_output(output, resume=resume, overwrite=overwrite)
    require_apart(source, output)
    chunk = max(CHUNK, predictor.batch_size) if chunk is None else chunk
    with ExitStack() as stack:
        rows = stack.enter_context(open_rows(source))
        column = rows.columns.index(find_smiles(rows, smiles_column))
        columns = Columns(predictor, rows.columns, column, empty_molecules=rows.empty_molecules)
        parts = _chunks(iter(rows), chunk)
        first = next(parts, None)
        if first is None:
            raise DataError(f"{rows.name}: there are no rows in it.")
        parts = itertools.chain([first], parts)
        written = None
        if isinstance(output, str | Path):
            path = Path(output)
            if resume and path.is_file():
                written = stack.enter_context(Written(path, columns, gaps=on_invalid == "skip"))
            output = stack.enter_context(path.open("a" if written else "w", newline="", encoding="utf-8"))
        if written is None or output.tell() == 0:
            output.write(csv_line(columns.header))
        table = _Table(predictor, columns, output, on_invalid, written, progress)
        report = table.run(parts, workers, chunk)
        _sync(output)
    return report


def require_output(output: str | Path | IO[str], *, resume: bool, overwrite: bool) -> None:
    """Refuse an output that cannot be what is asked for, and one that is there already, unless told what to do."""
    if resume and overwrite:
        raise ValueError("predict: `resume` goes on with an output, `overwrite` throws it away; give one of them.")
    if not isinstance(output, str | Path):
        if resume:
            raise ValueError("predict: `resume` needs an output file, not a stream.")
        return
    path = Path(output)
    if path.is_dir():
        raise ValueError(f"the output {path} is a folder; give the name of a file, e.g. {path / 'predictions.csv'}.")
    if path.suffix.lower() in _OTHER_FORMATS:
        raise ValueError(f"the output {path}: predictions are written as CSV; give a name that ends in .csv.")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"the output {path}: there is no folder {path.parent}.")
    if path.is_file() and path.stat().st_size and not resume and not overwrite:
        raise ValueError(
            f"the output {path} is there already; --resume goes on where it stopped, --overwrite starts anew."
        )


def require_apart(source: str | Path | BinaryIO, output: str | Path | IO[str]) -> None:
    """Refuse an output that is the input, by whatever names and through whatever redirection: it would be lost."""
    ends = [_status(sys.stdin if source == "-" else source), _status(output)]
    if ends[0] is not None and ends[1] is not None and os.path.samestat(ends[0], ends[1]):
        raise ValueError(f"the output {getattr(output, 'name', output)} is the input; give another file.")


def _status(end: str | Path | BinaryIO | IO[str]) -> os.stat_result | None:
    """Return what the system knows of a regular file; None of anything else."""
    try:
        status = os.stat(end if isinstance(end, str | Path) else end.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


class _Table:
    """One run over the rows."""

    def __init__(
        self,
        predictor: Predictor,
        columns: Columns,
        file: IO[str],
        on_invalid: OnInvalid,
        written: Written | None,
        progress: Counter,
    ) -> None:
        self.predictor, self.columns, self.file, self.on_invalid = predictor, columns, file, on_invalid
        self.before, self.progress = written, progress
        self.rows = self.written = self.invalid = 0
        self.waiting: deque[tuple[list[Row], list[list[str] | None]]] = deque()
        self.synced = time.monotonic()

    def run(self, parts: Iterator[list[Row]], workers: int | None, chunk: int) -> Report:
        stream = self.predictor.stream(self._molecules(parts), workers=workers, chunk=chunk)
        for predictions in stream:
            rows, before = self.waiting.popleft()
            found = list(self.columns.cells(rows, predictions))
            self._compare(rows, before, found)
            self._write(rows[len(before) :], found[len(before) :])
            self.progress(self.rows)
        return Report(self.rows, self.written, self.invalid, 0 if self.before is None else self.before.rows)

    def _molecules(self, parts: Iterator[list[Row]]) -> Iterator[str]:
        """Yield what is to be predicted: chunks that are written wholly pass, but for the last of them."""
        for rows in parts:
            before: list[list[str] | None] = []
            if self.before is not None and not self.before.exhausted:
                before = self.before.take(rows)
                if not self.before.exhausted:
                    self._require_invalid(rows, before)
                    continue
            self.waiting.append((rows, before))
            yield from map(self.columns.smiles, rows)
        if self.before is not None:
            self.before.require_end()

    def _require_invalid(self, rows: Sequence[Row], before: Sequence[list[str] | None]) -> None:
        """See that rows which an interrupted run left out cannot be predicted."""
        assert self.before is not None
        missing = [row for row, cells in zip(rows, before, strict=True) if cells is None]
        if missing:
            predictions = self.predictor(list(map(self.columns.smiles, missing)), workers=1)
            for row, cells in zip(missing, self.columns.cells(missing, predictions), strict=True):
                self.before.require_left_out(row, cells)

    def _compare(self, rows: Sequence[Row], before: Sequence[list[str] | None], found: Sequence[list[str]]) -> None:
        for row, old, new in zip(rows, before, found, strict=False):
            assert self.before is not None
            if old is None:
                self.before.require_left_out(row, new)
            else:
                self.before.require_same(row, old, new)

    def _write(self, rows: Sequence[Row], found: Sequence[list[str]]) -> None:
        lines = []
        try:
            for row, cells in zip(rows, found, strict=True):
                self.rows += 1
                if cells[-1]:
                    self.invalid += 1
                    if self.on_invalid == "error":
                        where = f"row {row.number}" + ("" if row.line is None else f" (line {row.line})")
                        raise InvalidMolecule(f"{where}: {cells[-1]}; --on-invalid keep or skip goes on.")
                    if self.on_invalid == "skip":
                        continue
                lines.append(csv_line([*self.columns.own(row), *cells]))
        finally:
            self.file.write("".join(lines))
            self.file.flush()
        self.written += len(lines)
        if time.monotonic() - self.synced > SYNC_SECONDS:
            _sync(self.file)
            self.synced = time.monotonic()


def _chunks(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while part := list(itertools.islice(rows, size)):
        yield part


def _sync(file: IO[str]) -> None:
    """Bring what was written to the disk, where the file lies on one."""
    file.flush()
    try:
        os.fsync(file.fileno())
    except (OSError, ValueError):
        return
