"""What a data set says about itself: enough to build a model for it, and to score one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from phcgnn.errors import require_positive

__all__ = ["METRICS", "NO_CLASS", "Features", "StoreMetadata", "Task"]

Task = Literal["regression", "classification", "multiclass"]
"""``regression``: any number of real targets. ``classification``: any number of yes/no targets, gaps allowed.
``multiclass``: one target that is a class number."""

Features = tuple[int, ...] | int | None
"""A tuple: one number of categories for each integer feature. A number: that many real features. None: none."""

METRICS: dict[Task, tuple[str, ...]] = {
    "regression": ("mae", "rmse", "r2"),
    "classification": ("roc_auc", "average_precision", "accuracy", "f1", "mcc"),
    "multiclass": ("accuracy", "f1", "mcc", "roc_auc", "average_precision"),
}
"""The metrics that make sense for a task, the usual one first."""

NO_CLASS = -100
"""The class number that says "no label"; :func:`torch.nn.functional.cross_entropy` leaves it out by default.
The other tasks say it with NaN."""


@dataclass(frozen=True, kw_only=True)
class StoreMetadata:
    """What a data set says about itself.

    Args:
        name: A name for people.
        task: What is predicted.
        targets: One name a target column; empty where nothing is known of any target.
        metric: The name of the leading metric: ``mae``, ``rmse``, ``r2``, ``roc_auc``, ``average_precision``,
            ``accuracy``, ``f1`` or ``mcc``.
        node_features: What a node carries.
        edge_features: What an edge carries.
        num_classes: For ``multiclass``.
        class_names: For ``multiclass``: what each class is called, where it has a name.
        level: Whether a target belongs to a graph or to a node.
        featuriser: Name and version of what made graphs of SMILES, e.g. ``"ogb/1"``; None where nothing did.

    >>> metadata = StoreMetadata(name="zinc", task="regression", targets=("y",), metric="mae", node_features=(28,),
    ...                          edge_features=(4,))
    >>> StoreMetadata.from_json(metadata.to_json()) == metadata
    True
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
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        where = "StoreMetadata"
        _require_text(where, name=self.name)
        if self.featuriser is not None:
            _require_text(where, featuriser=self.featuriser)
        _require_one_of(where, "task", self.task, get_args(Task))
        _require_one_of(where, "metric", self.metric, METRICS[self.task], f" for the task {self.task!r}")
        _require_one_of(where, "level", self.level, ("graph", "node"))
        if not isinstance(self.targets, tuple) or not all(isinstance(name, str) and name for name in self.targets):
            raise TypeError(f"{where}: `targets` must be a tuple of names, got {self.targets!r}.")
        twice = sorted({name for name in self.targets if self.targets.count(name) > 1})
        if twice:
            raise ValueError(f"{where}: `targets` must have different names, got {', '.join(twice)} more than once.")
        _require_features(where, node_features=self.node_features, edge_features=self.edge_features)
        self._require_classes(where)

    def _require_classes(self, where: str) -> None:
        if self.task != "multiclass":
            if self.num_classes is not None:
                raise ValueError(
                    f"{where}: `num_classes` is for the task 'multiclass', got {self.num_classes} with {self.task!r}."
                )
            if self.class_names is not None:
                raise ValueError(f"{where}: `class_names` is for the task 'multiclass', not {self.task!r}.")
            return
        if self.num_classes is None:
            raise ValueError(f"{where}: the task 'multiclass' needs `num_classes`.")
        require_positive(where, num_classes=self.num_classes)
        if self.class_names is not None and len(self.class_names) != self.num_classes:
            raise ValueError(
                f"{where}: `class_names` must name {self.num_classes} classes, got {len(self.class_names)}."
            )
        if len(self.targets) > 1:
            raise ValueError(f"{where}: the task 'multiclass' has one target, got {', '.join(self.targets)}.")

    def to_json(self) -> str:
        """Write as one line of JSON with sorted keys, the same for equal metadata."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StoreMetadata:
        """Read what :meth:`to_json` wrote; unknown, missing or ill-typed entries are refused by name."""
        try:
            entries = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"StoreMetadata: not JSON: {error}.") from error
        if not isinstance(entries, dict):
            raise ValueError(f"StoreMetadata: expected a JSON object, got {type(entries).__name__}.")
        known = {field.name for field in fields(cls)}
        if entries.keys() != known:
            wrong = [f"unknown {name}" for name in sorted(entries.keys() - known)]
            wrong += [f"missing {name}" for name in sorted(known - entries.keys())]
            raise ValueError(f"StoreMetadata: {', '.join(wrong)}; this is phcgnn's metadata of another version.")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()}
        return cls(**values)


def _require_text(where: str, **values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, str) or not value:
            raise TypeError(f"{where}: `{name}` must be a text that is not empty, got {value!r}.")


def _require_one_of(where: str, name: str, value: Any, choices: tuple[str, ...], when: str = "") -> None:
    if value not in choices:
        raise ValueError(f"{where}: `{name}` must be one of {', '.join(choices)}{when}, got {value!r}.")


def _require_features(where: str, **values: Features) -> None:
    for name, value in values.items():
        if value is None:
            continue
        counts = value if isinstance(value, tuple) else (value,)
        if not counts:
            raise ValueError(f"{where}: `{name}` is an empty tuple; write None where there are no features.")
        for count in counts:
            require_positive(where, **{name: count})
