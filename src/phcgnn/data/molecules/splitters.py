"""Ways to split molecules, by name: at random, by class, by scaffold, by cluster, by column; and k folds of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from phcgnn.data.molecules.clusters import butina_clusters, kmeans_clusters
from phcgnn.data.molecules.scaffold import scaffold_groups
from phcgnn.data.molecules.splits import PARTS, Split
from phcgnn.data.molecules.strata import strata
from phcgnn.registry import Registry

__all__ = ["SPLITTERS", "make_folds", "make_split"]

Groups = npt.NDArray[np.int64]

_SLACK = 1e-6
"""Of a bound in graphs, so that shares such as 0.7 + 0.2 + 0.1 do not lose a graph to rounding."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a way of splitting may look at."""

    total: int
    smiles: Sequence[str] | None
    y: npt.NDArray[Any] | None
    seed: int

    def need_smiles(self, method: str) -> Sequence[str]:
        if self.smiles is None:
            raise ValueError(f"split '{method}': it groups molecules, pass smiles=.")
        return self.smiles

    def need_y(self, method: str) -> npt.NDArray[Any]:
        if self.y is None:
            raise ValueError(f"split '{method}': it balances labels, pass y=.")
        return self.y


@dataclass(frozen=True, slots=True)
class Splitter:
    """A way of splitting: either into groups that stay whole, or along an order of the graphs."""

    groups: Callable[[Source], Groups] | None = None
    order: Callable[[Source], Groups] | None = None


SPLITTERS: Registry[Splitter] = Registry("split")


def _shuffled(source: Source) -> Groups:
    # RandomState's stream is frozen by NumPy's policy: a seed gives the same split in every release.
    return np.random.RandomState(source.seed).permutation(source.total).astype(np.int64)


def _stratified(source: Source) -> Groups:
    stratum = strata(source.need_y("stratified"))
    shuffled = _shuffled(source)
    return shuffled[np.argsort(stratum[shuffled], kind="stable")]


SPLITTERS.register("random")(Splitter(order=_shuffled))
SPLITTERS.register("stratified")(Splitter(order=_stratified))
SPLITTERS.register("scaffold")(Splitter(groups=lambda source: scaffold_groups(source.need_smiles("scaffold"))))
SPLITTERS.register("butina")(Splitter(groups=lambda source: butina_clusters(source.need_smiles("butina"))))
SPLITTERS.register("kmeans")(
    Splitter(groups=lambda source: kmeans_clusters(source.need_smiles("kmeans"), seed=source.seed))
)


def make_split(
    method: str,
    *,
    smiles: Sequence[str] | None = None,
    y: npt.NDArray[Any] | None = None,
    column: Sequence[str] | None = None,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Split:
    """Split graphs into training, validation and test.

    ``random`` and ``stratified`` depend on the seed; so does ``kmeans``. ``scaffold`` and ``butina`` do not: groups go
    in order of size, the largest to training while it has room, then to validation, and the rest to test.

    Args:
        method: ``random``; ``stratified``: every class, or tenth of a regression target, in its share in every part;
            ``scaffold``: Bemis-Murcko; ``butina`` and ``kmeans``: clusters of Morgan fingerprints; ``column``.
        smiles: For ``scaffold``, ``butina`` and ``kmeans``.
        y: ``(G, T)`` or ``(G,)``, NaN for gaps; for ``stratified``.
        column: For ``column``: train, val or test of each graph.
        fractions: The shares of training, validation and test; they add up to 1. Not for ``column``.
        seed: Of the shuffling.

    >>> make_split("random", smiles=["C"] * 10, seed=1)
    Split(train=8, val=1, test=1, method='random', seed=1)
    >>> smiles = ["c1ccccc1", "Cc1ccccc1", "C", "C1CC1"]
    >>> make_split("scaffold", smiles=smiles, fractions=(0.5, 0.25, 0.25)).train.tolist()
    [0, 1]
    """
    if method == "column":
        return _by_column(column)
    source = _source(method, smiles, y, seed)
    shares = np.asarray(fractions, dtype=float)
    if shares.shape != (3,) or not np.isfinite(shares).all() or (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"split '{method}': `fractions` must be three shares that add up to 1, got {fractions}.")
    splitter = SPLITTERS[method]
    if splitter.groups is not None:
        groups = splitter.groups(source)
        part = _largest_first(groups, shares)
        if shares[0] > 0 and not (part == 0).any():
            raise ValueError(
                f"split '{method}': nothing is left to train on, since groups stay whole and the smallest one holds "
                f"{np.unique(groups, return_counts=True)[1].min():,} of the {len(groups):,} molecules, more than the "
                f"share {shares[0]:g} of training. Use 'random' or 'stratified'."
            )
    else:
        assert splitter.order is not None
        part = _deal(splitter.order(source), shares, runs=method == "random")
    return _made(part, method, seed)


def make_folds(
    method: str,
    k: int,
    *,
    smiles: Sequence[str] | None = None,
    y: npt.NDArray[Any] | None = None,
    column: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Split]:
    """Split graphs into k folds: each in turn is the test set, the next one the validation set, the others train.

    Args:
        method: As for :func:`make_split`; groups stay whole. ``column``: the graph's fold, k different names.
        k: At least 3.
        smiles: As for :func:`make_split`.
        y: As for :func:`make_split`.
        column: One name of a fold a graph.
        seed: Of the shuffling.

    >>> [fold.test.tolist() for fold in make_folds("column", 3, column=["a", "b", "c", "a"])]
    [[0, 3], [1], [2]]
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 3:
        raise ValueError(f"make_folds: `k` must be at least 3 (one to test, one to validate, one to train), got {k!r}.")
    if method == "column":
        names, fold = np.unique([str(cell).strip() for cell in column or ()], return_inverse=True)
        if len(names) != k:
            raise ValueError(f"make_folds: the column names {len(names)} folds, expected k={k}.")
    else:
        source = _source(method, smiles, y, seed)
        if source.total < k:
            raise ValueError(f"make_folds: {source.total} graphs cannot make {k} folds.")
        splitter = SPLITTERS[method]
        if splitter.groups is not None:
            fold = _smallest_first(splitter.groups(source), k)
        else:
            assert splitter.order is not None
            fold = np.empty(source.total, dtype=np.int64)
            fold[splitter.order(source)] = np.arange(source.total) % k
    splits = []
    for number in range(k):
        part = np.zeros(len(fold), dtype=np.int64)
        part[fold == (number + 1) % k] = 1
        part[fold == number] = 2
        splits.append(_made(part, f"{method}, fold {number + 1} of {k}", seed))
    return splits


def _source(method: str, smiles: Sequence[str] | None, y: npt.NDArray[Any] | None, seed: int) -> Source:
    if method not in SPLITTERS:
        SPLITTERS[method]  # raises, and names the choices
    if smiles is None and y is None:
        raise ValueError(f"split '{method}': pass smiles= or y=, one entry a graph.")
    if smiles is not None and y is not None and len(smiles) != len(y):
        raise ValueError(f"split '{method}': there are {len(smiles)} SMILES and {len(y)} labels.")
    total = len(smiles) if smiles is not None else len(y)  # type: ignore[arg-type]
    if not total:
        raise ValueError(f"split '{method}': there are no graphs to split.")
    return Source(total, smiles, None if y is None else np.asarray(y), seed)


def _made(part: Groups, method: str, seed: int) -> Split:
    train, val, test = (np.flatnonzero(part == number) for number in range(3))
    return Split(train, val, test, total=len(part), method=method, seed=seed)


def _by_column(column: Sequence[str] | None) -> Split:
    if column is None:
        raise ValueError("split 'column': pass column=, train, val or test of each graph.")
    from phcgnn.data.molecules.table import SPLIT_NAMES

    names = [SPLIT_NAMES.get(str(cell).strip().casefold()) for cell in column]
    wrong = [str(cell) for cell, name in zip(column, names, strict=True) if name is None]
    if wrong:
        raise ValueError(f"split 'column': {len(wrong)} entries are not train, val or test; the first is {wrong[0]!r}.")
    part = np.array([PARTS.index(name) for name in names if name is not None], dtype=np.int64)
    train, val, test = (np.flatnonzero(part == number) for number in range(3))
    return Split(train, val, test, total=len(part), method="column")


def _largest_first(groups: Groups, shares: npt.NDArray[np.float64]) -> Groups:
    """Give whole groups away, the largest first, among equals the one whose first graph comes last."""
    total = len(groups)
    _, first, inverse, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    # The order of the comparisons, and 0.8 + 0.1 as the second bound, are those of the splits in use.
    bounds = (shares[0] * total + _SLACK, (shares[0] + shares[1]) * total + _SLACK)
    counts = [0, 0, 0]
    part_of_group = np.zeros(len(sizes), dtype=np.int64)
    for group in np.lexsort((-first, -sizes)).tolist():
        size = int(sizes[group])
        if counts[0] + size <= bounds[0]:
            part = 0
        elif counts[0] + counts[1] + size <= bounds[1]:
            part = 1
        else:
            part = 2
        counts[part] += size
        part_of_group[group] = part
    return part_of_group[inverse.ravel()]


def _smallest_first(groups: Groups, k: int) -> Groups:
    """Give whole groups, the largest first, to the fold that is smallest so far."""
    _, first, inverse, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    filled = [0] * k
    fold_of_group = np.zeros(len(sizes), dtype=np.int64)
    for group in np.lexsort((first, -sizes)).tolist():
        fold = filled.index(min(filled))
        filled[fold] += int(sizes[group])
        fold_of_group[group] = fold
    return fold_of_group[inverse.ravel()]


def _deal(order: Groups, shares: npt.NDArray[np.float64], *, runs: bool) -> Groups:
    """Give the graphs away along an order: in three runs, or each to the part that lacks it most."""
    total = len(order)
    part = np.zeros(total, dtype=np.int64)
    if runs:
        ends = np.rint(np.cumsum(shares)[:2] * total).astype(int)
        part[order[ends[0] : ends[1]]] = 1
        part[order[ends[1] :]] = 2
        return part
    given = [0.0, 0.0, 0.0]
    wanted = shares.tolist()
    for position, graph in enumerate(order.tolist(), 1):
        lacks = [share * position - have for share, have in zip(wanted, given, strict=True)]
        best = lacks.index(max(lacks))
        given[best] += 1
        part[graph] = best
    return part
