"""Strata of labels, for splits that keep every label's share in every part."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["strata"]

_FEW = 20


def strata(y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the stratum of each graph.

    One target of at most 20 values: the value. One target of more: its tenth. Several yes/no targets: the rarest yes of
    the graph, or that it has none. A gap, or nothing but gaps, is a stratum of its own.

    Shapes:
        - **y:** ``(G,)`` or ``(G, T)``, NaN for gaps
        - **output:** ``(G,)``

    >>> strata(np.array([0, 1, 1, 0])).tolist()
    [0, 1, 1, 0]
    >>> strata(np.array([[0, 0], [1, 0], [1, 1], [1, 0]], dtype=float)).tolist()
    [2, 0, 1, 0]
    """
    values = np.asarray(y, dtype=np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 1:
        return _of_one(values)
    if values.ndim != 2:
        raise ValueError(f"strata: `y` must be (G,) or (G, T), got {values.shape}.")
    known = values[~np.isnan(values)]
    if not np.isin(known, (0.0, 1.0)).all():
        raise ValueError(
            f"strata: of several targets ({values.shape[1]}) all must be yes/no; pass the one column to balance."
        )
    yes = values == 1
    rarest = np.argsort(yes.sum(0), kind="stable")
    first = np.argmax(yes[:, rarest], axis=1)
    out = np.where(yes.any(1), rarest[first], values.shape[1])
    return np.where(np.isnan(values).all(1), values.shape[1] + 1, out).astype(np.int64)


def _of_one(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    known = ~np.isnan(values)
    distinct = np.unique(values[known])
    if len(distinct) > _FEW:
        edges = np.quantile(values[known], np.linspace(0, 1, 11)[1:-1])
        stratum = np.searchsorted(edges, values, side="right")
    else:
        stratum = np.searchsorted(distinct, values)
    return np.where(known, stratum, max(len(distinct), 10)).astype(np.int64)
