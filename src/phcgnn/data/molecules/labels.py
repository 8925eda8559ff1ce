"""What may stand in a cell of a target: a number, a yes or no, a class; and what counts as a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["class_names", "is_gap", "parse_label", "parse_number"]

_GAPS = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"))
_YES = frozenset(("1", "true", "yes"))
_NO = frozenset(("0", "false", "no"))
_LARGEST = 3.4e38
_EXACT = 2**53
"""Up to here a float tells every whole number from its neighbours."""


def is_gap(cell: object) -> bool:
    """Return whether a cell says that there is no value: nothing, NA, N/A, NaN, null, None, in any case.

    >>> is_gap(" NaN "), is_gap(None), is_gap(0)
    (True, True, False)
    """
    return str(cell).strip().casefold() in _GAPS  # not `cell != cell`: pandas' NA refuses to be compared


def parse_number(cell: object) -> float:
    """Return a number, NaN for a gap; ValueError with the reason for anything else.

    >>> parse_number("-1.5e-3"), parse_number("NA")
    (-0.0015, nan)
    >>> parse_number("1,5")
    Traceback (most recent call last):
    ValueError: not a number (a decimal comma? write a point)
    """
    if is_gap(cell):
        return math.nan
    text = str(cell).strip()
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if isinstance(cell, bool) or math.isnan(value):
        raise ValueError(f"not a number{_hint(text)}")
    if abs(value) > _LARGEST:
        raise ValueError("not a finite number of single precision")
    return value


def parse_label(cell: object) -> float:
    """Return 1.0 or 0.0 for a yes or a no, NaN for a gap; ValueError with the reason for anything else.

    >>> [parse_label(cell) for cell in ("1", "0.0", "TRUE", "no", "")]
    [1.0, 0.0, 1.0, 0.0, nan]
    """
    if is_gap(cell):
        return math.nan
    text = str(cell).strip().casefold()
    if text in _YES:
        return 1.0
    if text in _NO:
        return 0.0
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if value not in (0.0, 1.0):
        raise ValueError("not a yes or no: write 1 or 0, true or false, yes or no; for more classes say multiclass")
    return value


def class_names(cells: Sequence[object]) -> tuple[str, ...]:
    """Return the classes in order: whole numbers by size, anything else by the alphabet.

    >>> class_names(["10", "9", "9.0"]), class_names(["red", "blue", "red"])
    (('9', '10'), ('blue', 'red'))
    """
    names = {class_name(cell) for cell in cells}
    try:
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    except ValueError:
        return tuple(sorted(names))


def class_name(cell: object) -> str:
    """Return the name of a class as it is recorded; a whole number loses its ``.0``."""
    text = str(cell).strip()
    try:
        value = math.nan if "_" in text else float(text)  # Python reads 1_0 as 10
    except ValueError:
        return text
    return str(int(value)) if value.is_integer() and abs(value) < _EXACT else text


def _hint(text: str) -> str:
    if text[:1] in "<>~=≤≥" and text[1:]:
        return " (a bound; give a number, or leave the cell empty)"
    if text.count(",") == 1 and text.replace(",", ".").lstrip("+-").replace(".", "", 1).isdigit():
        return " (a decimal comma? write a point)"
    return ""
