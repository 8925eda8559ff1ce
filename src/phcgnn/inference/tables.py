"""Predictions for a table of any length: rows in, the same rows out with a column a target, in bounded memory."""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Literal

import numpy as np

from phcgnn.errors import DataError
from phcgnn.inference.predictor import Predictions, Predictor

if TYPE_CHECKING:
    from phcgnn.data.molecules import RowChunk

__all__ = ["InvalidMolecule", "Report", "predict_table"]

OnInvalid = Literal["keep", "skip", "error"]

Counter = Callable[[int], None]
"""Told how many rows are done."""


class InvalidMolecule(DataError):
    """A row that cannot be predicted, where that was to stop the work."""


@dataclass(frozen=True)
class Report:
    """How many rows were read, written, and could not be predicted, those before a resumption left out."""

    rows: int
    written: int
    invalid: int


def predict_table(
    predictor: Predictor,
    source: str | Path | BinaryIO,
    output: str | Path | IO[str],
    *,
    smiles_column: str | None = None,
    on_invalid: OnInvalid = "keep",
    resume: bool = False,
    workers: int | None = None,
    chunk: int = 512,
    progress: Counter = lambda rows: None,
) -> Report:
    """Predict for every row of a table and write the rows with the predictions beside them.

    The input's columns and the order of rows stay. A column a target is added (the value, or the probability of yes;
    for classes the likeliest one and a column a class), with several models ``<target>_std`` too, and ``error``. A name
    that the input has already gets ``_predicted`` behind it.

    Args:
        predictor: The model.
        source: CSV, Parquet, SMI or SDF; ``"-"`` for standard input.
        output: A CSV file, or an open text.
        smiles_column: (default: the one called smiles)
        on_invalid: What happens to rows that cannot be predicted: ``keep`` leaves the prediction empty and says why in
            ``error``, ``skip`` leaves them out, ``error`` stops.
        resume: Go on where an interrupted output stopped; not together with ``skip``, which loses the count.
        workers: Processes that make graphs.
        chunk: Rows at a time.
        progress: Told after each chunk how many rows are done.
    """
    from phcgnn.data.molecules import stream_rows

    if on_invalid not in ("keep", "skip", "error"):
        raise ValueError(f"predict: `on_invalid` must be keep, skip or error, got {on_invalid!r}.")
    if resume and (on_invalid == "skip" or not isinstance(output, str | Path)):
        raise ValueError("predict: `resume` needs an output file with a line a row: no standard output, no 'skip'.")
    chunks = iter(stream_rows(source, smiles_column=smiles_column, chunk=chunk))
    first = next(chunks, None)
    if first is None:
        raise DataError(f"{source}: there are no rows in it.")
    header = [*first.columns, *_columns(predictor, first.columns)]
    done = 0
    if not isinstance(output, str | Path):
        return _run(
            predictor, itertools.chain([first], chunks), output, header, 0, on_invalid, workers, chunk, progress
        )
    path = Path(output)
    if resume and path.exists():
        done = _repair(path, header)
    with path.open("a" if done or (resume and path.exists()) else "w", newline="", encoding="utf-8") as file:
        return _run(
            predictor, itertools.chain([first], chunks), file, header, done, on_invalid, workers, chunk, progress
        )


def _run(
    predictor: Predictor,
    chunks: Iterator[RowChunk],
    file: IO[str],
    header: Sequence[str],
    done: int,
    on_invalid: OnInvalid,
    workers: int | None,
    chunk: int,
    progress: Counter,
) -> Report:
    writer = csv.writer(file, lineterminator="\n")
    if not done:
        writer.writerow(header)
    waiting: deque[RowChunk] = deque()
    rows = written = invalid = 0

    def molecules() -> Iterator[str]:
        left = done
        for part in chunks:
            if left >= len(part.rows):
                left -= len(part.rows)
                continue
            if left:
                part = type(part)(part.columns, part.smiles_column, part.rows[left:])
                left = 0
            waiting.append(part)
            yield from part.smiles

    for part, predictions in _aligned(predictor.stream(molecules(), workers=workers, chunk=chunk), waiting):
        for row, values in zip(part.rows, _cells(predictor, predictions, part), strict=True):
            rows += 1
            error = values[-1]
            if error:
                invalid += 1
                if on_invalid == "error":
                    where = f"row {row.number}" + ("" if row.line is None else f" (line {row.line})")
                    raise InvalidMolecule(f"{where}: {error}; --on-invalid keep or skip goes on.")
                if on_invalid == "skip":
                    continue
            cells = [*row.cells[: len(part.columns)], *[""] * (len(part.columns) - len(row.cells))]
            writer.writerow([*cells, *values])
            written += 1
        file.flush()
        progress(rows)
    return Report(rows, written, invalid)


def _aligned(stream: Iterator[Predictions], waiting: deque[RowChunk]) -> Iterator[tuple[RowChunk, Predictions]]:
    """Bring predictions, which come in chunks of their own, together with the rows that they are for."""
    left: list[Predictions] = []
    count = 0
    for predictions in stream:
        left.append(predictions)
        count += len(predictions.errors)
        while waiting and count >= len(waiting[0].rows):
            part = waiting.popleft()
            whole = _join(left)
            size = len(part.rows)
            yield part, _slice(whole, 0, size)
            left, count = [_slice(whole, size, count)], count - size


def _join(parts: list[Predictions]) -> Predictions:
    if len(parts) == 1:
        return parts[0]
    deviations = [part.deviation for part in parts if part.deviation is not None]
    return Predictions(
        np.concatenate([part.mean for part in parts]),
        np.concatenate(deviations) if deviations else None,
        [error for part in parts for error in part.errors],
    )


def _slice(part: Predictions, start: int, end: int) -> Predictions:
    deviation = None if part.deviation is None else part.deviation[start:end]
    return Predictions(part.mean[start:end], deviation, part.errors[start:end])


def _columns(predictor: Predictor, taken: Sequence[str]) -> list[str]:
    """Return the names of the columns that are added."""
    several = len(predictor.members) > 1
    columns: list[str] = []
    if predictor.task == "multiclass":
        target = predictor.targets[0]
        classes = predictor.classes or tuple(map(str, range(predictor.outputs)))
        columns.append(target)
        for name in classes:
            columns += [f"{target}_{name}", f"{target}_{name}_std"] if several else [f"{target}_{name}"]
    else:
        for target in predictor.targets:
            columns += [target, f"{target}_std"] if several else [target]
    columns.append("error")
    return [f"{column}_predicted" if column in taken else column for column in columns]


def _cells(predictor: Predictor, predictions: Predictions, part: RowChunk) -> Iterator[list[str]]:
    """Yield the added cells of each row; the last one is the error."""
    mean, deviation = predictions.mean.tolist(), predictions.deviation
    spread = None if deviation is None else deviation.tolist()
    classes = predictor.classes or tuple(map(str, range(predictor.outputs)))
    rows = zip(part.rows, part.smiles, predictions.errors, strict=True)
    for at, (row, smiles, error) in enumerate(rows):
        problem = row.problem or error or ("" if smiles else "no SMILES")
        cells: list[str] = []
        if predictor.task == "multiclass":
            cells.append("" if problem else classes[int(np.argmax(mean[at]))])
        for column, value in enumerate(mean[at]):
            cells.append("" if problem else f"{value:.6g}")
            if spread is not None:
                cells.append("" if problem else f"{spread[at][column]:.6g}")
        yield [*cells, problem]


def _repair(path: Path, header: Sequence[str]) -> int:
    """Cut an interrupted output behind its last whole row; return how many rows it has."""
    with path.open("rb+") as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        lines = _Lines(text)
        reader = csv.reader(lines)
        found = next(reader, None)
        if found is None:
            return 0
        if found != list(header):
            raise DataError(
                f"{path}: its columns are not those of this input and model; predict into another file, or leave "
                "--resume out to start anew."
            )
        rows, end = 0, lines.whole
        for row in reader:
            if len(row) != len(header) or not lines.complete:
                break
            rows, end = rows + 1, lines.whole
        text.detach()
        file.truncate(end)
        file.flush()
        os.fsync(file.fileno())
    return rows


class _Lines:
    """Lines of a text, and up to which byte whole ones were read."""

    def __init__(self, text: IO[str]) -> None:
        self.text, self.whole, self.complete = text, 0, True

    def __iter__(self) -> Iterator[str]:
        for line in self.text:
            self.complete = line.endswith("\n")
            if self.complete:
                self.whole += len(line.encode())
            yield line
