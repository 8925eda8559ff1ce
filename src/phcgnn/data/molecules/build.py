"""From a table to a store: graphs, the last of the bad rows, and the decision about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import METRICS, NO_CLASS, StoreMetadata
from phcgnn.data.molecules.featurisers import Featuriser, featuriser, label, select
from phcgnn.data.molecules.invalid import BadRow, InvalidRowsError, OnInvalid
from phcgnn.data.molecules.pool import featurise
from phcgnn.data.molecules.repeats import Contradiction, contradictions
from phcgnn.data.molecules.splits import PARTS, Split
from phcgnn.data.molecules.table import MoleculeTable
from phcgnn.data.progress import Progress, silent

__all__ = ["PreparedTable", "prepare_table", "table_to_store"]

Repeats = Literal["bad", "keep"]


@dataclass(frozen=True)
class PreparedTable:
    """A table whose every row has a graph.

    Args:
        table: The rows that are left; ``table.bad`` lists all the others.
        graphs: Their graphs, in order, in runs.
        featuriser: What made them.
        repeats: Molecules that occur with different labels and were kept, by their places in ``table``.
    """

    table: MoleculeTable
    graphs: list[FlatGraphs]
    featuriser: Featuriser
    repeats: tuple[Contradiction, ...] = ()

    def store(
        self,
        *,
        splits: Split | Mapping[str, npt.NDArray[np.int64]] | None = None,
        metric: str | None = None,
        name: str | None = None,
    ) -> GraphStore:
        """Pack the graphs.

        Args:
            splits: Over the rows of ``table`` (default: the table's split column, where it was read).
            metric: The leading metric (default: the task's usual one).
            name: (default: the name of the file, without its ending)
        """
        table = self.table
        if splits is None and table.split is not None:
            part = np.array(table.split, dtype=object)
            splits = {name: np.flatnonzero(part == name) for name in PARTS}
        parts = splits.parts() if isinstance(splits, Split) else splits
        if isinstance(splits, Split) and splits.total != len(table):
            raise ValueError(f"{table.name}: the split is of {splits.total} graphs, and {len(table)} rows are left.")
        metadata = StoreMetadata(
            name=name or Path(table.name).name.removesuffix(".gz").rpartition(".")[0] or table.name,
            task=table.task,
            targets=table.targets,
            metric=metric or METRICS[table.task][0],
            node_features=self.featuriser.node_features,
            edge_features=self.featuriser.edge_features,
            num_classes=None if table.classes is None else len(table.classes),
            featuriser=label(self.featuriser),
            class_names=table.classes,
        )
        return GraphStore.from_flat(
            self.graphs,
            metadata=metadata,
            y=torch.from_numpy(table.y),
            splits=None if parts is None else {key: torch.from_numpy(np.asarray(v)) for key, v in parts.items()},
            ids=table.ids,
            smiles=table.smiles,
            weights=None if table.weights is None else torch.from_numpy(table.weights),
        )


def prepare_table(
    table: MoleculeTable,
    *,
    by: str | Featuriser = "ogb",
    on_invalid: OnInvalid = "error",
    repeats: Repeats | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> PreparedTable:
    """Make the graphs of a table, over all cores, and settle what happens to the rows that cannot be used.

    Bad are, beside those that the table lists: SMILES that the featuriser refuses, and molecules that occur twice with
    different labels: all their rows, since nobody can know which one is right. Repeated *measurements* are no
    contradiction: of a regression table they stay, and ``PreparedTable.repeats`` lists them.

    Args:
        table: Best read with ``on_invalid="defer"``, which leaves parsing and the decision to this function.
        by: A featuriser or its name.
        on_invalid: ``"error"``: stop, and list every bad row. ``"skip"``: go on without them, if others are left.
        repeats: Whether molecules with different labels are ``"bad"`` or stay (``"keep"``) (default: ``"keep"`` for
            regression, ``"bad"`` otherwise).
        workers: Processes (default: all cores).
        progress: Told how many molecules are done.
    """
    if on_invalid not in ("error", "skip"):
        raise ValueError(f"{table.name}: `on_invalid` must be error or skip, got {on_invalid!r}.")
    if repeats not in (None, "bad", "keep"):
        raise ValueError(f"{table.name}: `repeats` must be bad or keep, got {repeats!r}.")
    made = featuriser(by)
    graphs, refused = _graphs(table, made, workers, progress)
    # Only the rows that have a graph can be compared; a refused one is listed by itself.
    readable = table.take(np.setdiff1d(np.arange(len(table)), [place for place, _ in refused])) if refused else table
    found = _contradictions(readable, graphs)
    keep_repeats = repeats == "keep" or (repeats is None and table.task == "regression")
    contradictory = [] if keep_repeats else [row for one in found for row in _describe(readable, one)]
    place_of = {int(row): place for place, row in enumerate(table.rows.tolist())}
    places = [(place_of[row.row], row) for row in contradictory]
    settled = table.without([*refused, *places], on_invalid)
    if not len(settled) and settled.bad:
        raise InvalidRowsError(table.name, settled.bad, table.total)
    left_out = {row.row for row in contradictory}
    if left_out:
        keep = ~np.isin(readable.rows, list(left_out))
        starts = np.cumsum([0, *map(len, graphs)])
        graphs = [select(run, keep[a:b]) for run, a, b in zip(graphs, starts[:-1], starts[1:], strict=True)]
    return PreparedTable(settled, graphs, made, tuple(found) if keep_repeats else ())


def table_to_store(
    table: MoleculeTable,
    *,
    by: str | Featuriser = "ogb",
    on_invalid: OnInvalid = "error",
    repeats: Repeats | None = None,
    splits: Split | Mapping[str, npt.NDArray[np.int64]] | None = None,
    metric: str | None = None,
    name: str | None = None,
    workers: int | None = None,
) -> GraphStore:
    """Make a store of a table in one go: :func:`prepare_table`, then :meth:`PreparedTable.store`.

    >>> from phcgnn.data.molecules import make_table
    >>> table_to_store(make_table(["CCO", "C", "CC"], {"y": [1, 2, 3]}))
    GraphStore('table', 3 graphs, 2.0 nodes and 2.0 edges on average, regression of 1 target, 0.00 MB)
    """
    prepared = prepare_table(table, by=by, on_invalid=on_invalid, repeats=repeats, workers=workers)
    return prepared.store(splits=splits, metric=metric, name=name)


def _graphs(
    table: MoleculeTable, made: Featuriser, workers: int | None, progress: Progress
) -> tuple[list[FlatGraphs], list[tuple[int, BadRow]]]:
    graphs: list[FlatGraphs] = []
    refused: list[tuple[int, BadRow]] = []
    done = 0
    for run, errors in featurise(table.smiles, made, workers=workers):
        for error in errors:
            place = done + error.index
            value = table.smiles[place]
            refused.append((place, table.bad_row(place, table.smiles_column, value, error.reason)))
        graphs.append(run)
        done += len(run) + len(errors)
        progress("making graphs", done, len(table))
    return graphs, refused


def _contradictions(table: MoleculeTable, graphs: list[FlatGraphs]) -> list[Contradiction]:
    if not len(table):
        return []
    gap: Any = NO_CLASS if table.task == "multiclass" else np.nan
    return contradictions(table.smiles, table.y, graphs, gap=gap)


def _describe(table: MoleculeTable, one: Contradiction) -> list[BadRow]:
    column = one.targets[0]
    labels = table.y if table.y.ndim == 1 else table.y[:, column]
    target = table.targets[column]
    described = []
    for place in one.places:
        others = ", ".join(str(table.rows[other]) for other in one.places if other != place)
        more = f" (and {len(one.targets) - 1} more targets)" if len(one.targets) > 1 else ""
        reason = f"the same molecule as row {others}, labelled differently{more}"
        said = "" if np.isnan(labels[place]) or labels[place] == NO_CLASS else _said(table, labels[place])
        described.append(table.bad_row(place, target, said, reason))
    return described


def _said(table: MoleculeTable, value: Any) -> str:
    return table.classes[int(value)] if table.classes is not None else f"{value:g}"
