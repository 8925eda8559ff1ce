"""The wording of every error: where and what was given, what was expected, how to fix it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "DataError",
    "ShapeError",
    "require_bool",
    "require_divisible",
    "require_integer",
    "require_positive",
    "require_probability",
]


class DataError(ValueError):
    """Data that cannot be used as they are: a damaged file, a missing download, values outside their range.

    The message names the file or the graph and ends with what to do; a command prints it and leaves with exit code 1.
    """


class ShapeError(ValueError):
    """A tensor of the wrong shape.

    Args:
        name: Which tensor, with the layer that it was given to, e.g. ``"PHMLinear: input"``.
        got: The shape that was given.
        expected: The shape that was expected; a string stands for a free axis.
        hint: How to fix it.

    >>> raise ShapeError("PHMLinear: input", got=(5, 30), expected=("*", 32), hint="in_features is 32")
    Traceback (most recent call last):
    phcgnn.errors.ShapeError: PHMLinear: input has shape (5, 30), expected (*, 32); in_features is 32.
    """

    def __init__(self, name: str, *, got: Sequence[int], expected: Sequence[int | str], hint: str = "") -> None:
        message = f"{name} has shape {_shape(got)}, expected {_shape(expected)}"
        super().__init__(f"{message}; {hint}." if hint else f"{message}.")


def require_positive(where: str, **values: int) -> None:
    """Refuse anything but a positive integer.

    >>> require_positive("PHMLinear", n=0)
    Traceback (most recent call last):
    ValueError: PHMLinear: `n` must be at least 1, got 0.
    """
    for name, value in values.items():
        require_integer(where, **{name: value})
        if value < 1:
            raise ValueError(f"{where}: `{name}` must be at least 1, got {value}.")


def require_integer(where: str, **values: object) -> None:
    """Refuse anything but Python's own integers, and say how others become one.

    >>> require_integer("Algebra.clifford", p=1.0)
    Traceback (most recent call last):
    TypeError: Algebra.clifford: `p` must be an int, got 1.0 (float).
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "" if isinstance(value, bool) or not hasattr(value, "__index__") else f"; pass int({name})"
            raise TypeError(f"{where}: `{name}` must be an int, got {value!r} ({type(value).__name__}){hint}.")


def require_bool(where: str, **values: object) -> None:
    """Refuse anything but True and False: the text ``"False"`` is true.

    >>> require_bool("PHMLinear", bias="False")
    Traceback (most recent call last):
    TypeError: PHMLinear: `bias` must be True or False, got 'False' (str).
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise TypeError(f"{where}: `{name}` must be True or False, got {value!r} ({type(value).__name__}).")


def require_divisible(where: str, n: int, **widths: int) -> None:
    """Refuse a width that ``n`` does not divide, and name the nearest ones that it does.

    >>> require_divisible("PHMLinear", 4, in_features=30)
    Traceback (most recent call last):
    ValueError: PHMLinear: `in_features` must be a multiple of n=4, got 30. Use 28 or 32, or pick n among the divisors
        of 30: 1, 2, 3, 5, 6, 10, 15, 30.
    """
    require_positive(where, n=n, **widths)
    for name, width in widths.items():
        if width % n:
            low, high = width // n * n, (width // n + 1) * n
            use = f"{low} or {high}" if low else f"{high}"
            divisors = ", ".join(str(d) for d in range(1, width + 1) if width % d == 0)
            raise ValueError(
                f"{where}: `{name}` must be a multiple of n={n}, got {width}. "
                f"Use {use}, or pick n among the divisors of {width}: {divisors}."
            )


def require_probability(where: str, **values: float) -> None:
    """Refuse anything outside [0, 1).

    >>> require_probability("ComponentDropout", p=1.5)
    Traceback (most recent call last):
    ValueError: ComponentDropout: `p` must be a probability in [0, 1), got 1.5.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{where}: `{name}` must be a number, got {value!r} ({type(value).__name__}).")
        if not 0 <= value < 1:
            raise ValueError(f"{where}: `{name}` must be a probability in [0, 1), got {value}.")


def _shape(axes: Sequence[int | str]) -> str:
    return "(" + ", ".join(str(axis) for axis in axes) + ("," if len(axes) == 1 else "") + ")"
