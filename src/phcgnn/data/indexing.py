"""Which graphs are meant: every way that Python, numpy and torch have to say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

__all__ = ["Indices", "as_index"]

Indices = slice | Sequence[int] | Tensor | npt.NDArray[Any]
"""Positions, or a mask: a slice, a sequence, a tensor or an array."""


def as_index(indices: Indices, size: int) -> npt.NDArray[np.int64]:
    """Return positions between 0 and ``size``; negative ones count from the end.

    >>> as_index([0, -1, 0], 5), as_index(slice(3, None, -2), 5), as_index(np.array([True, False, True]), 3)
    (array([0, 4, 0]), array([3, 1]), array([0, 2]))
    """
    if isinstance(indices, slice):
        return np.ascontiguousarray(np.arange(size, dtype=np.int64)[indices])
    if isinstance(indices, Tensor):
        indices = indices.detach().cpu().numpy()
    found = np.asarray(indices)
    if found.ndim != 1:
        raise IndexError(f"GraphStore: indices must be a vector, got shape {found.shape}.")
    if not len(found):
        return np.empty(0, np.int64)
    if found.dtype == np.bool_:
        if len(found) != size:
            raise IndexError(f"GraphStore: a mask must have one entry for each of the {size} graphs, got {len(found)}.")
        return np.flatnonzero(found)
    if found.dtype.kind not in "iu":
        raise TypeError(f"GraphStore: indices must be integers or a mask, got {found.dtype}.")
    index = np.ascontiguousarray(found, np.int64)
    low, high = int(index.min()), int(index.max())
    if low < -size or high >= size:
        raise IndexError(f"GraphStore: index {low if low < -size else high} is out of range, there are {size} graphs.")
    return np.where(index < 0, index + size, index) if low < 0 else index
