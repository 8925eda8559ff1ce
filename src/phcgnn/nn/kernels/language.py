"""Triton where it is installed; elsewhere stand-ins, so that files with kernels can be imported and read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["jit", "tl"]


def _leave(kernel: Any) -> Any:
    """Leave a kernel as it is: nothing launches it here."""
    return kernel


jit: Any = _leave
tl: Any = SimpleNamespace()

try:
    import triton
    import triton.language

    jit, tl = triton.jit, triton.language
except ImportError:
    pass
