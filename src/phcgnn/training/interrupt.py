"""SIGTERM and Ctrl-C ask a run to save and leave; a second one makes it leave at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupted", "StopRequest"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A run was asked to stop, and saved where it was."""


class StopRequest:
    """While it is entered, the first signal is only noted (:attr:`wanted`); the second acts as it always does."""

    def __init__(self) -> None:
        self.wanted: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.wanted = signal.Signals(number).name
        self._release()

    def _release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
