"""Molecules that stand in a table more than once and are labelled differently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles

__all__ = ["Contradiction", "contradictions", "graph_keys"]

Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One molecule in several places whose labels differ.

    Args:
        places: Its places, ascending, from 0.
        targets: The columns of ``y`` in which two known labels differ.
    """

    places: tuple[int, ...]
    targets: tuple[int, ...]


def contradictions(
    smiles: Sequence[str], y: npt.NDArray[Any], graphs: FlatGraphs | Sequence[FlatGraphs], *, gap: float = np.nan
) -> list[Contradiction]:
    """Return the molecules that occur with different labels.

    Two SMILES are one molecule if RDKit writes them as one canonical SMILES, stereo included. Only those are written
    whose graphs look alike and whose labels differ, so that a table without contradictions costs no second parsing.

    Args:
        smiles: One text a molecule.
        y: ``(G, T)`` or ``(G,)``.
        graphs: Their graphs, in one run or several.
        gap: The label that says that there is none.

    >>> from phcgnn.data.molecules import featuriser
    >>> smiles = ["CCO", "C", "OCC"]
    >>> contradictions(smiles, np.array([[1.0], [0.0], [0.0]]), featuriser("ogb")(smiles)[0])
    [Contradiction(places=(0, 2), targets=(0,))]
    """
    from rdkit import Chem

    runs = [graphs] if isinstance(graphs, FlatGraphs) else graphs
    keys = np.concatenate([graph_keys(run) for run in runs]) if runs else np.empty(0, np.uint64)
    labels = np.asarray(y, dtype=np.float64).reshape(len(smiles), -1)
    labels = np.where(labels == gap, np.nan, labels)
    found = []
    with quiet_rdkit():
        for places in _groups(keys.tolist()):
            if not _differing(labels[places]):
                continue
            same: defaultdict[str, list[int]] = defaultdict(list)
            for place in places:
                same[Chem.MolToSmiles(read_smiles(smiles[place]))].append(place)
            for alike in same.values():
                if targets := _differing(labels[alike]):
                    found.append(Contradiction(tuple(alike), targets))
    return sorted(found, key=lambda one: one.places)


def graph_keys(graphs: FlatGraphs) -> Keys:
    """Return a number a graph that does not depend on the order of its nodes; equal graphs have equal numbers.

    Two rounds of the Weisfeiler-Leman test on the first feature of a node. Unequal graphs may share a number.
    """
    nodes = len(graphs.x)
    colour = np.zeros(nodes, dtype=np.uint64)
    if graphs.x.shape[1]:
        colour = np.ascontiguousarray(graphs.x[:, 0], dtype=np.float64).view(np.uint64)
    start = np.cumsum(graphs.node_counts) - graphs.node_counts
    offset = np.repeat(start, graphs.edge_counts)
    source, target = graphs.edge_index[0] + offset, graphs.edge_index[1] + offset
    for _ in range(2):
        colour = _mix(colour)
        around = np.zeros_like(colour)
        np.add.at(around, target, colour[source])
        colour = colour * np.uint64(0x9E3779B97F4A7C15) + around
    keys = _mix(graphs.node_counts.astype(np.uint64))
    np.add.at(keys, np.repeat(np.arange(len(graphs)), graphs.node_counts), _mix(colour))
    return keys


def _mix(values: Keys) -> Keys:
    """Scatter 64 bits (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _groups(keys: list[int]) -> list[list[int]]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        groups[key].append(place)
    return [places for places in groups.values() if len(places) > 1]


def _differing(labels: npt.NDArray[np.float64]) -> tuple[int, ...]:
    """Return the columns in which two known labels differ."""
    low = np.where(np.isnan(labels), np.inf, labels).min(0)
    high = np.where(np.isnan(labels), -np.inf, labels).max(0)
    return tuple(np.flatnonzero(low < high).tolist())
