"""What a data set says about itself: enough to build a model for it, and to score one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Features", "StoreMetadata", "Task"]

Task = Literal["regression", "classification", "multiclass"]
"""``regression``: any number of real targets. ``classification``: any number of yes/no targets, gaps allowed.
``multiclass``: one target that is a class number."""

Features = tuple[int, ...] | int | None
"""A tuple: the number of categories of each integer feature. A number: that many real features. None: none."""


@dataclass(frozen=True, kw_only=True)
class StoreMetadata:
    """What a data set says about itself.

    Args:
        name: A name for people.
        task: What is predicted.
        targets: One name a target column.
        metric: The name of the leading metric: ``mae``, ``rmse``, ``r2``, ``roc_auc``, ``average_precision``,
            ``accuracy``, ``f1`` or ``mcc``.
        node_features: What a node carries.
        edge_features: What an edge carries.
        num_classes: For ``multiclass``.
        level: Whether a target belongs to a graph or to a node.
        featuriser: Name and version of what made graphs of SMILES, e.g. ``"ogb/1"``; None where nothing did.
    """

    name: str
    task: Task
    targets: tuple[str, ...]
    metric: str
    node_features: Features
    edge_features: Features
    num_classes: int | None = None
    level: Literal["graph", "node"] = "graph"
    featuriser: str | None = None
