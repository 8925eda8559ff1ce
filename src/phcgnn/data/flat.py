"""Graphs laid end to end: what every reader and featuriser hands over and what a store is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["FlatGraphs"]


@dataclass(frozen=True, slots=True)
class FlatGraphs:
    """A run of graphs as five arrays, cheap to hand from one process to another.

    Shapes:
        - **x:** ``(V, F_node)``, any integer or floating type; ``F_node`` may be 0
        - **node_counts:** ``(G,)``, int64
        - **edge_index:** ``(2, E)``, int32: source and target, numbered from 0 within each graph
        - **edge_attr:** ``(E, F_edge)``, any integer or floating type; ``F_edge`` may be 0
        - **edge_counts:** ``(G,)``, int64
    """

    x: npt.NDArray[np.generic]
    node_counts: npt.NDArray[np.int64]
    edge_index: npt.NDArray[np.int32]
    edge_attr: npt.NDArray[np.generic]
    edge_counts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Count the graphs."""
        return len(self.node_counts)
