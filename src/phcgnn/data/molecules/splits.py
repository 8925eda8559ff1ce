"""A split into training, validation and test: three lists of numbers that share none, kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PARTS", "Split", "load_folds", "load_split", "save_folds"]

PARTS = ("train", "val", "test")
_ALIASES = {"valid": "val", "validation": "val", "training": "train"}
_SCHEMA = 1

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Which graphs train, which validate, and which test: numbers from 0, ascending, no number twice.

    Args:
        train: Anything that is a list of whole numbers; the same for ``val`` and ``test``.
        total: How many graphs there are; some may be in no part.
        method: How it was made.
        seed: The seed, where one was used.

    >>> Split([3, 0], [1], [2], total=4)
    Split(train=2, val=1, test=1, method='given')
    """

    train: Indices
    val: Indices
    test: Indices
    total: int
    method: str = "given"
    seed: int | None = None

    def __init__(
        self,
        train: Sequence[int] | Indices,
        val: Sequence[int] | Indices,
        test: Sequence[int] | Indices,
        *,
        total: int,
        method: str = "given",
        seed: int | None = None,
    ) -> None:
        if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < 0:
            raise ValueError(f"Split: `total` must be a number of graphs, got {total!r}.")
        seen = np.full(total, -1)
        for number, (part, given) in enumerate(zip(PARTS, (train, val, test), strict=True)):
            values = np.asarray(given)
            if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
                raise ValueError(f"Split: `{part}` must be a list of whole numbers, got {_show(given)}.")
            values = np.sort(values.astype(np.int64))
            outside = values[(values < 0) | (values >= total)]
            if outside.size:
                raise ValueError(
                    f"Split: `{part}` has {outside.size} numbers outside 0 ... {total - 1}, the first is {outside[0]}. "
                    f"Is it the split of another table?"
                )
            taken = values[seen[values] >= 0]
            if taken.size:
                other = PARTS[seen[taken[0]]]
                raise ValueError(
                    f"Split: {taken.size} graphs of `{part}` are in `{other}` too, the first is {taken[0]}."
                )
            doubled = values[1:][values[1:] == values[:-1]]
            if doubled.size:
                raise ValueError(f"Split: `{part}` has {doubled.size} numbers twice, the first is {doubled[0]}.")
            seen[values] = number
            object.__setattr__(self, part, values)
        for name, value in (("total", int(total)), ("method", method), ("seed", seed)):
            object.__setattr__(self, name, value)

    def parts(self) -> dict[str, Indices]:
        """Return the parts by name, as :meth:`phcgnn.data.GraphStore.from_flat` takes them once they are tensors."""
        return {part: getattr(self, part) for part in PARTS}

    def save(self, path: str | Path) -> None:
        """Write the split to a JSON file."""
        _write({"schema": _SCHEMA, **self._document()}, path)

    def _document(self) -> dict[str, Any]:
        parts = {part: indices.tolist() for part, indices in self.parts().items()}
        return {"method": self.method, "seed": self.seed, "total": self.total, **parts}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Split) and self._document() == other._document()

    def __hash__(self) -> int:
        return hash((self.total, self.method, self.seed, *(indices.tobytes() for indices in self.parts().values())))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{part}={len(indices)}" for part, indices in self.parts().items())
        seed = "" if self.seed is None else f", seed={self.seed}"
        return f"Split({sizes}, method={self.method!r}{seed})"


def load_split(path: str | Path, *, total: int | None = None, rows: Sequence[int] | Indices | None = None) -> Split:
    """Read a split from a JSON file, checked.

    A file of one's own needs ``train``, ``val`` (or ``valid``, ``validation``) and ``test``, each a list of numbers.

    Args:
        path: The file.
        total: The number of graphs, or of rows of the table, that it has to fit.
        rows: Where some of a table's ``total`` rows are left out: the numbers, from 1, of those that are left, as
            ``MoleculeTable.rows`` has them. The file's numbers, from 0, are of all rows of the table, unless its own
            ``total`` is the number of those that are left. The split that is returned is of those that are left.
    """
    document = _read(path)
    if rows is None or document.get("total") == len(rows):
        return _split(document, path, total if rows is None else len(rows))
    split = _split(document, path, total)
    place = np.full(split.total, -1)
    place[np.asarray(rows, dtype=np.int64) - 1] = np.arange(len(rows))
    train, val, test = (place[part][place[part] >= 0] for part in split.parts().values())
    return Split(train, val, test, total=len(rows), method=split.method, seed=split.seed)


def save_folds(folds: Sequence[Split], path: str | Path) -> None:
    """Write the splits of a cross-validation to one JSON file."""
    _write({"schema": _SCHEMA, "folds": [fold._document() for fold in folds]}, path)


def load_folds(path: str | Path, *, total: int | None = None) -> list[Split]:
    """Read the splits of a cross-validation, checked one by one."""
    folds = _read(path).get("folds")
    if not isinstance(folds, list) or not folds:
        raise ValueError(f"{path}: this is one split and no cross-validation; it has no list 'folds'.")
    return [_split(fold, path, total) for fold in folds]


def _read(path: str | Path) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}: a split is an object with train, val and test, got {_show(document)}.")
    if document.get("schema", _SCHEMA) != _SCHEMA:
        raise ValueError(f"{path}: schema {document['schema']!r} is not known here, only {_SCHEMA}; update phcgnn.")
    return document


def _split(document: Mapping[str, Any], path: str | Path, total: int | None) -> Split:
    if not isinstance(document, Mapping):
        raise ValueError(f"{path}: a split is an object with train, val and test, got {_show(document)}.")
    named = {_ALIASES.get(key, key): value for key, value in document.items()}
    missing = [part for part in PARTS if part not in named]
    if missing:
        hint = "; it is a cross-validation, take one of its folds" if "folds" in named else ""
        raise ValueError(f"{path}: there is no {', '.join(missing)} in it{hint}.")
    for part in PARTS:
        if not isinstance(named[part], list) or any(type(value) is not int for value in named[part]):
            raise ValueError(f"{path}: `{part}` must be a list of whole numbers, got {_show(named[part])}.")
    written = named.get("total")
    if written is None:
        written = total if total is not None else 1 + max((max(named[p]) for p in PARTS if named[p]), default=-1)
    if total is not None and written != total:
        raise ValueError(
            f"{path}: this splits {written} graphs, and there are {total}. Is it the split of another table?"
        )
    try:
        parts = (named[part] for part in PARTS)
        return Split(*parts, total=written, method=str(named.get("method", "given")), seed=named.get("seed"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _write(document: Mapping[str, Any], path: str | Path) -> None:
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    partial.replace(target)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
