"""The demo: two networks that differ in n alone, trained on the same molecules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from phcgnn.data.graphs import GraphStore
from phcgnn.experiments.settings import RunSettings, merge, read_preset
from phcgnn.training.loop import Observer
from phcgnn.training.run import Result, train

__all__ = ["DemoRun", "demo_settings", "errors_of_the_mean", "train_demo"]


@dataclass(frozen=True, kw_only=True)
class DemoRun:
    """One of the demo's networks, trained."""

    name: str
    folder: Path
    result: Result


def demo_settings(n: int, epochs: int | None = None) -> RunSettings:
    """Return the preset ``_demo`` with the dimension n.

    >>> demo_settings(4).model["n"], demo_settings(4, epochs=2).training.epochs
    (4, 2)
    """
    settings = RunSettings.build(merge([read_preset("_demo"), {"model": {"n": n}}]))
    if epochs is None:
        return settings
    return replace(settings, training=replace(settings.training, epochs=epochs))


def errors_of_the_mean(store: GraphStore) -> dict[str, float]:
    """Return the MAE of answering the training mean always, by split: what a network has to beat.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from phcgnn.data import StoreMetadata
    >>> metadata = StoreMetadata(name="toy", task="regression", targets=("y",), metric="mae", node_features=(5,),
    ...                          edge_features=None)
    >>> graphs = [Data(x=torch.tensor([[0]]), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.tensor([[y]]))
    ...           for y in (1.0, 3.0, 2.0, 5.0)]
    >>> splits = {"train": torch.tensor([0, 1]), "val": torch.tensor([2]), "test": torch.tensor([3])}
    >>> errors_of_the_mean(GraphStore.from_pyg(graphs, metadata=metadata, splits=splits))
    {'val': 0.0, 'test': 3.0}
    """
    assert store.y is not None
    mean = store.y[store.splits["train"]].mean()
    return {split: (store.y[store.splits[split]] - mean).abs().mean().item() for split in ("val", "test")}


def train_demo(
    store: GraphStore,
    out: Path,
    show: Callable[[str, RunSettings], AbstractContextManager[Observer]],
    *,
    epochs: int | None = None,
) -> list[DemoRun]:
    """Train PHC-1 and PHC-4 under ``out``, each from the start.

    Args:
        store: The molecules.
        out: Gets a run folder for each.
        show: Makes what is told of a run's progress, from its name and settings.
        epochs: (default: the preset's)
    """
    runs = []
    for n in (1, 4):
        name, settings = f"phc-{n}", demo_settings(n, epochs)
        with show(name, settings) as observer:
            result = train(
                store,
                out / name,
                model=settings.model,
                config=settings.training,
                overwrite=True,
                observer=observer,
                record={"config.toml": settings.to_toml()},
            )
        runs.append(DemoRun(name=name, folder=out / name, result=result))
    return runs
