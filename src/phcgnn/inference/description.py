"""What ``model.json`` says beside the architecture, checked before anything is predicted with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from phcgnn.data.metadata import Task
from phcgnn.errors import DataError
from phcgnn.models.config import PHCGNNConfig

__all__ = ["require_decodable", "require_molecular"]


def require_decodable(folder: str | Path, config: PHCGNNConfig, about: Mapping[str, Any]) -> None:
    """Refuse a description that does not say how the network's outputs are to be read.

    >>> config = PHCGNNConfig(node_features=(28,), edge_features=None, targets=2)
    >>> require_decodable("mine", config, {"task": "regression", "normalisation": {"mean": [0.5], "deviation": [1.0]}})
    Traceback (most recent call last):
    phcgnn.errors.DataError: mine/model.json: `normalisation` must hold 2 finite numbers as `mean`, got [0.5]. ...
    """
    task = about.get("task")
    if task not in get_args(Task):
        _refuse(folder, f"`task` must be one of {', '.join(get_args(Task))}, got {task!r}")
    scale = about.get("normalisation")
    if scale is None:
        return
    if task != "regression" or not isinstance(scale, dict):
        _refuse(folder, f"`normalisation` must be nothing, or of a regression a mean and a deviation, got {scale!r}")
    for part in ("mean", "deviation"):
        values: Any = scale.get(part)
        if not _are_numbers(values, config.targets) or (part == "deviation" and min(values) <= 0):
            _refuse(folder, f"`normalisation` must hold {config.targets} finite numbers as `{part}`, got {values!r}")


def require_molecular(folder: str | Path, config: PHCGNNConfig, about: Mapping[str, Any]) -> None:
    """Refuse a model that does not say how a SMILES becomes its graph, and what its outputs are called."""
    from phcgnn.data.molecules import featuriser

    if about.get("featuriser") is None or "task" not in about:
        raise DataError(
            f"{folder}: it does not say how a SMILES becomes a graph (no featuriser); only models that were trained on "
            "molecules can predict from SMILES."
        )
    require_decodable(folder, config, about)
    try:
        made = featuriser(about["featuriser"])
    except (TypeError, ValueError) as error:
        raise DataError(f"{folder}/model.json: {error}") from None
    for field in ("node_features", "edge_features"):
        if getattr(config, field) != getattr(made, field):
            _refuse(
                folder,
                f"the network takes {field} {getattr(config, field)}, and its featuriser {about['featuriser']!r} makes "
                f"{getattr(made, field)}",
            )
    if config.task != "graph":
        _refuse(folder, "the network predicts for atoms, not for molecules")
    multiclass = about["task"] == "multiclass"
    targets, classes = about.get("targets"), about.get("classes")
    expected = 1 if multiclass else config.targets
    if not _are_names(targets, expected):
        _refuse(folder, f"`targets` must be {expected} different names, got {targets!r}")
    if classes is not None and not (multiclass and _are_names(classes, config.targets)):
        _refuse(folder, f"`classes` must be nothing, or of a multiclass task {config.targets} names, got {classes!r}")


def _refuse(folder: str | Path, what: str) -> None:
    raise DataError(f"{folder}/model.json: {what}. The file was altered; save the model anew with `save_model`.")


def _are_names(values: Any, count: int) -> bool:
    """Whether these are so many different texts, none of them empty."""
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        return False
    return len(values) == count == len(set(values))


def _are_numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        and all(map(math.isfinite, values))
    )
