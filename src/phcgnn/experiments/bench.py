"""How fast training and prediction are on this machine: the work, and what ``phcgnn bench`` and the benchmarks time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Batch

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import StoreMetadata
from phcgnn.experiments.settings import RunSettings, merge, read_preset
from phcgnn.experiments.timing import Step, interleave, median_ratio
from phcgnn.models import PHCGNN, PHCGNNConfig
from phcgnn.models.compact import compact
from phcgnn.training.captured import CapturedStep
from phcgnn.training.config import TrainingConfig
from phcgnn.training.prepare import prepare

__all__ = ["SHORT", "Runner", "Work", "forever", "prediction", "short_bench", "synthetic_store", "training"]

SHORT = ("zinc-100k-phc1", "zinc-100k-phc5", "zinc-100k-phc16", "molhiv-phc4")
"""The presets of the short form."""


@dataclass(frozen=True)
class Work:
    """What is timed: an architecture and how it is trained.

    >>> work = Work.from_preset("zinc-100k-phc5", dense=True)
    >>> work.model["width"], work.training.batch_size
    (200, 256)
    """

    name: str
    model: dict[str, Any]
    training: TrainingConfig
    data: str = "zinc"

    @classmethod
    def from_preset(cls, preset: str, *, batch_size: int | None = None, **model: Any) -> Work:
        """Take a preset, with changes to its model."""
        settings = RunSettings.build(merge([read_preset(preset), {"model": model}]))
        config = settings.training
        config = config if batch_size is None else replace(config, batch_size=batch_size)
        return cls(preset, settings.model, config, settings.data.name or "zinc")

    def config(self, metadata: StoreMetadata) -> PHCGNNConfig:
        """Return the architecture for a data set."""
        fixed = {
            "node_features": metadata.node_features,
            "edge_features": metadata.edge_features,
            "targets": metadata.num_classes or len(metadata.targets),
        }
        return PHCGNNConfig.from_dict({**self.model, **fixed})


@dataclass
class Runner:
    """A training step with its next batch, ready to be called over and over."""

    step: Step
    network: nn.Module
    graphs: int
    """In a batch."""
    not_fast: str | None = None
    """Why the path for GPUs was not prepared; None where it was."""
    taken: object = None
    """The training step; on the path for GPUs a recorded one."""
    losses: list[torch.Tensor] = field(default_factory=list)

    @property
    def why_plain(self) -> str | None:
        """Why the path for GPUs is not used; None where it is. It is known once steps have been taken."""
        if self.not_fast is not None:
            return self.not_fast
        if isinstance(self.taken, CapturedStep) and self.taken.recorded:
            return None
        return self.taken.reason or "no batch was padded" if isinstance(self.taken, CapturedStep) else "not recorded"

    @property
    def compiled(self) -> bool:
        """Whether the update of the nodes was compiled; known once steps have been taken."""
        return isinstance(self.taken, CapturedStep) and self.taken.compiled


FEATURES: dict[str, tuple[Any, Any]] = {
    "zinc": ((28,), (4,)),
    "molhiv": ((119, 4, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)),
    "molpcba": ((119, 4, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)),
    "ppa": (None, 7),
}
SIZES = {"ppa": (243, 2266)}
"""Nodes and edges of an average graph; what is missing is of a molecule's size."""


def synthetic_store(
    data: str = "zinc",
    graphs: int = 1024,
    *,
    nodes: int | None = None,
    edges: int | None = None,
    targets: int = 1,
    seed: int = 0,
) -> GraphStore:
    """Return random graphs of the shape of a benchmark: what speed depends on, and nothing to learn.

    A graph is a path of its nodes with random edges added, all of them in both directions; sizes vary by a fifth.

    Args:
        data: ``zinc``, ``molhiv``, ``molpcba`` or ``ppa``.
        graphs: How many.
        nodes: Nodes of an average graph. (default: that benchmark's)
        edges: Edges of an average graph, each direction counted. (default: that benchmark's)
        targets: Number of targets.
        seed: Of everything random.

    >>> synthetic_store("molhiv", 64)
    GraphStore('synthetic molhiv', 64 graphs, 2... nodes and 5... edges on average, classification of 1 target, ...
    """
    random = np.random.default_rng(seed)
    node_features, edge_features = FEATURES[data]
    usual = SIZES.get(data, (24, 52))
    nodes, edges = usual[0] if nodes is None else nodes, usual[1] if edges is None else edges
    counts = random.integers(max(2, nodes * 4 // 5), max(3, nodes * 6 // 5 + 1), graphs)
    links, edge_counts = [], np.empty(graphs, np.int64)
    for graph, count in enumerate(counts):
        path = np.arange(count - 1)
        more = max(0, round(edges * count / nodes / 2) - len(path))
        ends = np.concatenate([np.stack([path, path + 1]), random.integers(0, count, (2, more))], 1)
        links.append(np.concatenate([ends, ends[::-1]], 1))
        edge_counts[graph] = links[-1].shape[1]
    flat = FlatGraphs(
        x=_features(random, node_features, int(counts.sum())),
        node_counts=counts.astype(np.int64),
        edge_index=np.concatenate(links, 1).astype(np.int32),
        edge_attr=_features(random, edge_features, int(edge_counts.sum())),
        edge_counts=edge_counts,
    )
    yes_no = data.startswith("mol")
    y = torch.from_numpy(random.normal(size=(graphs, targets)).astype(np.float32))
    metadata = StoreMetadata(
        name=f"synthetic {data}",
        task="classification" if yes_no else "regression",
        targets=tuple(f"y{i}" for i in range(targets)),
        metric="roc_auc" if yes_no else "mae",
        node_features=node_features,
        edge_features=edge_features,
    )
    order = torch.arange(graphs)
    return GraphStore.from_flat(
        [flat], metadata=metadata, y=(y > 0).float() if yes_no else y, splits={"train": order, "val": order[:0]}
    )


def _features(random: np.random.Generator, features: Any, rows: int) -> np.ndarray[Any, Any]:
    if features is None:
        return np.empty((rows, 0), np.int64)
    if isinstance(features, int):
        return random.random((rows, features), np.float32)
    return np.stack([random.integers(0, count, rows) for count in features], 1)


def forever(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Run epoch after epoch."""
    while True:
        yield from batches


def training(work: Work, store: GraphStore, *, device: str = "cpu", fast: bool = True, seed: int = 0) -> Runner:
    """Return a training step: assemble the next batch, forward, backward, clip, update.

    Args:
        work: What is trained.
        store: On any device; it is moved.
        device: Where the step runs.
        fast: Whether to use what ``phcgnn train`` uses on a GPU; without it operations are launched one by one.
        seed: Of the weights and of the order of the graphs.
    """
    torch.manual_seed(seed)
    store = store.to(device)
    network = PHCGNN.from_config(work.config(store.metadata), device=device)
    network.validate = False
    network.train()
    config = replace(work.training, seed=seed)
    prepared = prepare(store, network, config, compile=fast)
    batches = forever(prepared.loader)

    def run() -> object:
        return prepared.step(next(batches), config.lr)

    size = min(config.batch_size, len(store.splits["train"]))
    return Runner(run, network, size, prepared.plain, prepared.step)


def prediction(network: PHCGNN, store: GraphStore, batch_size: int) -> Step:
    """Return the prediction of the next batch by a compact copy of the network, on all threads.

    ``phcgnn predict`` runs the same copy, on a CPU in smaller passes of one thread each.
    """
    small = compact(network)
    small.validate = False
    batches = forever(store.loader(batch_size))

    def run() -> object:
        with torch.inference_mode():
            return small(next(batches))

    return run


def short_bench(
    presets: Sequence[str] = SHORT, *, device: str = "cpu", seconds: float = 10.0, graphs: int = 1024
) -> Iterator[Mapping[str, Any]]:
    """Time each preset against the same widths on plain ``nn.Linear``, on synthetic graphs; yield a line each.

    Args:
        presets: Whose networks.
        device: Where.
        seconds: For a preset, about.
        graphs: Of a data set.
    """
    for preset in presets:
        works = {"phc": Work.from_preset(preset), "dense": Work.from_preset(preset, dense=True)}
        store = synthetic_store(works["phc"].data, graphs)
        runners = {name: training(work, store, device=device) for name, work in works.items()}
        size = runners["phc"].graphs
        steps = {name: runner.step for name, runner in runners.items()}
        times = interleave(steps, rounds=5, seconds=seconds * 0.7, cuda=device == "cuda")
        network = runners["phc"].network
        assert isinstance(network, PHCGNN)
        predict = {"predict": prediction(network, store.to(device), size)}
        predicted = interleave(predict, rounds=5, seconds=seconds * 0.2, cuda=device == "cuda")["predict"]
        step = statistics.median(times["phc"])
        yield {
            "benchmark": "bench",
            "preset": preset,
            "n": works["phc"].model["n"],
            "parameters": network.num_parameters(),
            "batch_size": size,
            "step_ms": round(step * 1e3, 3),
            "training_graphs_per_second": round(size / step, 1),
            "prediction_graphs_per_second": round(size / statistics.median(predicted), 1),
            "step_to_dense": round(median_ratio(times, "phc", "dense"), 3),
            "plain_path_because": runners["phc"].why_plain,
            "compiled": runners["phc"].compiled,
        }
