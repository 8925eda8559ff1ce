"""How long work says how far it is."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """Anything that can be told what is being done, how much of it is done, and of how much (None: unknown)."""

    def __call__(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Take note."""


def silent(what: str, done: int = 0, total: int | None = None) -> None:
    """Say nothing."""
