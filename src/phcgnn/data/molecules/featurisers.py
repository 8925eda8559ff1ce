"""The featurisers by name: SMILES in, graphs end to end out, the same in training and in prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from phcgnn.data.flat import FlatGraphs
from phcgnn.registry import Registry

__all__ = ["FEATURISERS", "Featuriser", "SmilesError", "assemble", "concatenate", "featuriser", "label", "select"]


@dataclass(frozen=True, slots=True)
class SmilesError:
    """A SMILES that gave no graph: its place in the list that was passed, and why."""

    index: int
    reason: str


@runtime_checkable
class Featuriser(Protocol):
    """What turns SMILES into graphs. An object that can be pickled, with a name and a version that a model records.

    A call returns the graphs of the readable SMILES, in order, and one :class:`SmilesError` for each of the others; no
    SMILES is in both or in neither. Change what a call returns, and ``version`` must go up.
    """

    name: str
    version: int
    node_features: tuple[int, ...]
    """The number of categories of each integer feature of an atom."""
    edge_features: tuple[int, ...]
    """The number of categories of each integer feature of a bond."""

    def __call__(self, smiles: Sequence[str]) -> tuple[FlatGraphs, list[SmilesError]]:
        """Return the graphs of the readable SMILES, and the unreadable ones with a reason."""
        ...


FEATURISERS: Registry[type[Any]] = Registry("featuriser")


def featuriser(name: str | Featuriser) -> Featuriser:
    """Return the featuriser of a name, with or without its version: ``"ogb"`` or ``"ogb/1"``.

    An object that is a featuriser already is returned as it is.

    >>> featuriser("ogb/1").node_features
    (119, 4, 12, 12, 10, 6, 6, 2, 2)
    >>> featuriser("ogb/2")
    Traceback (most recent call last):
    ValueError: featuriser 'ogb/2' is not in this release, which has 'ogb/1'. Use the release that wrote the model, ...
    """
    if not isinstance(name, str):
        if isinstance(name, type) or not isinstance(name, Featuriser):
            raise TypeError(f"a featuriser is a name or an object such as OgbFeaturiser(), got {name!r}.")
        return name
    base, slash, version = name.partition("/")
    made: Featuriser = FEATURISERS[base]()
    if slash and version != str(made.version):
        raise ValueError(
            f"featuriser '{name}' is not in this release, which has '{label(made)}'. "
            f"Use the release that wrote the model, or featurise and train anew."
        )
    return made


def label(made: Featuriser) -> str:
    """Return what a model and a store record: name and version.

    >>> label(featuriser("zinc"))
    'zinc/1'
    """
    return f"{made.name}/{made.version}"


def assemble(
    columns: Sequence[npt.NDArray[np.generic]],
    node_counts: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    bond_columns: Sequence[npt.NDArray[np.generic]],
    bond_counts: Sequence[int],
) -> FlatGraphs:
    """Lay feature columns side by side, and every bond down as two edges, there and back, one after the other."""
    ends = np.array([begin, end], dtype=np.int32).reshape(2, -1)
    edge_index = np.stack([ends, ends[::-1]], axis=2).reshape(2, -1)
    return FlatGraphs(
        x=np.stack(columns, axis=1).astype(np.uint8, copy=False),
        node_counts=np.array(node_counts, dtype=np.int64),
        edge_index=np.ascontiguousarray(edge_index),
        edge_attr=np.repeat(np.stack(bond_columns, axis=1).astype(np.uint8, copy=False), 2, axis=0),
        edge_counts=2 * np.array(bond_counts, dtype=np.int64),
    )


def select(graphs: FlatGraphs, keep: npt.NDArray[np.bool_]) -> FlatGraphs:
    """Return the graphs for which ``keep`` is true.

    >>> graphs, errors = featuriser("ogb")(["CCO", "C"])
    >>> select(graphs, np.array([False, True])).node_counts
    array([1])
    """
    nodes, edges = np.repeat(keep, graphs.node_counts), np.repeat(keep, graphs.edge_counts)
    return FlatGraphs(
        x=graphs.x[nodes],
        node_counts=graphs.node_counts[keep],
        edge_index=graphs.edge_index[:, edges],
        edge_attr=graphs.edge_attr[edges],
        edge_counts=graphs.edge_counts[keep],
    )


def concatenate(parts: Iterable[FlatGraphs]) -> FlatGraphs:
    """Join runs of graphs into one.

    >>> graphs, errors = featuriser("ogb")(["CCO"])
    >>> len(concatenate([graphs, graphs]))
    2
    """
    runs = list(parts)
    if not runs:
        raise ValueError("concatenate: there is nothing to join, pass at least one FlatGraphs.")
    return FlatGraphs(
        x=np.concatenate([run.x for run in runs]),
        node_counts=np.concatenate([run.node_counts for run in runs]),
        edge_index=np.concatenate([run.edge_index for run in runs], axis=1),
        edge_attr=np.concatenate([run.edge_attr for run in runs]),
        edge_counts=np.concatenate([run.edge_counts for run in runs]),
    )
