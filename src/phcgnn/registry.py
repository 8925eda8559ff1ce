"""Names that become objects: one registry a kind of thing, which also feeds the error text and the CLI's choices."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

__all__ = ["Registry", "unknown"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to things of one kind.

    Args:
        kind: What the things are, for the error text.

    >>> SHAPES: Registry[type] = Registry("shape")
    >>> @SHAPES.register("circle")
    ... class Circle: ...
    >>> SHAPES["circle"].__name__, list(SHAPES)
    ('Circle', ['circle'])
    >>> SHAPES["circel"]
    Traceback (most recent call last):
    ValueError: unknown shape 'circel'; choose from circle. Did you mean 'circle'?
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under ``name``."""

        def file(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} '{name}' is registered already.")
            self._entries[name] = entry
            return entry

        return file

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str):
            raise TypeError(
                f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind} is named by a string, "
                f"got {name!r} ({type(name).__name__})."
            )
        if name not in self._entries:
            raise ValueError(unknown(self.kind, name, list(self)))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}: {', '.join(self)})"


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Say that a name is not among the known ones, and which it may have been.

    >>> unknown("shape", "circel", ["circle", "square"])
    "unknown shape 'circel'; choose from circle, square. Did you mean 'circle'?"
    """
    close = difflib.get_close_matches(name, known, n=1)
    hint = f". Did you mean '{close[0]}'?" if close else "."
    return f"unknown {kind} '{name}'; choose from {', '.join(known)}{hint}"
