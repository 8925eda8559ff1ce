"""Scores of a trained model, or of the mean of several, on data with known targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phcgnn.data.graphs import GraphStore
from phcgnn.errors import DataError
from phcgnn.inference.description import require_decodable
from phcgnn.models.folder import load_model
from phcgnn.nn import fold
from phcgnn.training.metrics import TASK_METRICS, score
from phcgnn.training.targets import Decoder

__all__ = ["evaluate"]


def evaluate(
    folders: Sequence[Path],
    store: GraphStore,
    split: str | None = "test",
    *,
    device: torch.device | str | None = None,
    batch_size: int = 512,
) -> dict[str, Any]:
    """Score models on a split of a store; several are averaged.

    Args:
        folders: Model folders.
        store: Data with targets.
        split: Its name; None takes every graph.
        device: Where the networks run. (default: a GPU where there is one)
        batch_size: Graphs a forward pass.

    Returns:
        ``metrics``, ``by_target``, ``graphs`` and what was scored.
    """
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    metadata = store.metadata
    if store.y is None:
        raise DataError(f"{metadata.name} has no targets to score against.")
    store = store.to(place)
    loader = store.loader(batch_size, split=split)
    total, targets = None, None
    for folder in folders:
        model, about = load_model(folder, device=place)
        about = {"task": metadata.task, **about}
        require_decodable(folder, model.config, about)
        classes = _class_numbers(folder, about, store)
        _require_fit(folder, about, model.config, store, renumbered=classes is not None)
        decode = Decoder.from_metadata(about)
        network = fold(model, inplace=True).eval()
        with torch.inference_mode():
            batches = [(decode(network(batch)).cpu(), batch.y.cpu()) for batch in loader]
        if not batches:
            raise DataError(f"{metadata.name}: the split {split!r} has no graphs.")
        outputs = torch.cat([output for output, _ in batches]).double()
        targets = torch.cat([target for _, target in batches])
        if classes is not None:
            targets = torch.where(targets >= 0, classes[targets.clamp_min(0)], targets)
        total = outputs if total is None else total + outputs
    if total is None or targets is None:
        raise ValueError("evaluate: give at least one model folder.")
    predictions = (total / len(folders)).float()
    scores = {name: score(name, predictions, targets) for name in TASK_METRICS[metadata.task]}
    return {
        "data": metadata.name,
        "split": split,
        "graphs": len(loader.members),
        "models": len(folders),
        "metrics": {name: _number(one.mean) for name, one in scores.items()},
        "by_target": {
            target: {name: _number(one.by_target[at]) for name, one in scores.items()}
            for at, target in enumerate(metadata.targets)
        },
    }


def _number(value: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return value if math.isfinite(value) else None


def _class_numbers(folder: Path, about: dict[str, Any], store: GraphStore) -> Tensor | None:
    """Return the model's number of each class of the data, where both have names: a table may lack some of them."""
    names, known = store.metadata.class_names, about.get("classes")
    if names is None or known is None:
        return None
    strange = [name for name in names if name not in known]
    if strange:
        raise DataError(
            f"{folder}: {store.metadata.name} has the classes {', '.join(map(repr, strange))}, which are not among the "
            f"model's: {', '.join(map(repr, known))}."
        )
    return torch.tensor([known.index(name) for name in names])


def _require_fit(folder: Path, about: dict[str, Any], config: Any, store: GraphStore, *, renumbered: bool) -> None:
    metadata = store.metadata
    outputs = config.targets if renumbered else metadata.num_classes or len(metadata.targets)
    pairs = {
        "node features": (config.node_features, metadata.node_features),
        "edge features": (config.edge_features, metadata.edge_features),
        "outputs": (config.targets, outputs),
        "level": (config.task, metadata.level),
        "task": (about.get("task", metadata.task), metadata.task),
        "featuriser": _where_both_say(about.get("featuriser"), metadata.featuriser),
    }
    for what, (of_model, of_data) in pairs.items():
        if of_model != of_data:
            raise DataError(
                f"{folder} does not fit {metadata.name}: {what} of the model {of_model!r}, of the data {of_data!r}. "
                "Give the data that it was trained for, or another model."
            )


def _where_both_say(of_model: str | None, of_data: str | None) -> tuple[str | None, str | None]:
    """Return both, or the same twice where one does not say: a benchmark comes with features that none here made."""
    return of_model or of_data, of_data or of_model
