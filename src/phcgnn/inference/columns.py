"""What prediction adds to a table: the names of the columns, and the cells of each row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from phcgnn.data.molecules import Row
    from phcgnn.inference.predictor import Predictions, Predictor

__all__ = ["Columns", "csv_line"]

_SPECIAL = re.compile('[",\r\n]')


class Columns:
    """The columns of an output: the input's, then the predictions', then ``error``.

    Args:
        predictor: The model.
        own: The input's columns.
        smiles: Which of them holds the molecules.
        empty_molecules: Whether an empty SMILES is a molecule without atoms, and no gap.
    """

    def __init__(self, predictor: Predictor, own: Sequence[str], smiles: int, *, empty_molecules: bool) -> None:
        self.width, self.smiles_at, self.empty_molecules = len(own), smiles, empty_molecules
        self.classes: tuple[str, ...] | None = None
        if predictor.task == "multiclass":
            self.classes = predictor.classes or tuple(map(str, range(predictor.outputs)))
        self.header = [*own, *_unlike(own, _names(predictor, self.classes))]

    def own(self, row: Row) -> list[str]:
        """Return the input's cells of a row, one a column."""
        return [*row.cells[: self.width], *[""] * (self.width - len(row.cells))]

    def smiles(self, row: Row) -> str:
        """Return the molecule of a row, "" where there is none."""
        return row.cells[self.smiles_at].strip() if self.smiles_at < len(row.cells) else ""

    def cells(self, rows: Sequence[Row], predictions: Predictions) -> Iterator[list[str]]:
        """Yield the added cells of each row; the last one is the error."""
        mean, deviation = predictions.mean.tolist(), predictions.deviation
        spread = None if deviation is None else deviation.tolist()
        for at, (row, error) in enumerate(zip(rows, predictions.errors, strict=True)):
            problem = row.problem or error
            if not problem and not self.empty_molecules and not self.smiles(row):
                problem = "no SMILES"
            if problem:
                yield [*[""] * (len(self.header) - self.width - 1), problem]
                continue
            cells = [] if self.classes is None else [self.classes[int(np.argmax(mean[at]))]]
            for column, value in enumerate(mean[at]):
                cells.append(f"{value:.6g}")
                if spread is not None:
                    cells.append(f"{spread[at][column]:.6g}")
            yield [*cells, ""]


def _names(predictor: Predictor, classes: tuple[str, ...] | None) -> Iterator[str]:
    values = predictor.targets
    if classes is not None:
        yield predictor.targets[0]
        values = tuple(f"{predictor.targets[0]}_{name}" for name in classes)
    for value in values:
        yield value
        if len(predictor.members) > 1:
            yield f"{value}_std"
    yield "error"


def _unlike(taken: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return names that differ from those taken and from each other.

    >>> _unlike(["smiles", "y", "y_predicted"], ["y", "error"])
    ['y_predicted_predicted', 'error']
    """
    seen, found = set(taken), []
    for name in names:
        while name in seen:
            name += "_predicted"
        seen.add(name)
        found.append(name)
    return found


def csv_line(cells: Iterable[str]) -> str:
    r"""Return a line of CSV; a cell is quoted where it has to be, so that every reader splits it alike.

    >>> csv_line(["a", "", "b, c", "d\re"])
    'a,,"b, c","d\re"\n'
    """
    quoted = ('"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell for cell in cells)
    return ",".join(quoted) + "\n"
