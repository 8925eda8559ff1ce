"""One run from a packed data set to a model folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import StoreMetadata
from phcgnn.errors import DataError
from phcgnn.models import PHCGNN, PHCGNNConfig
from phcgnn.models.folder import save_model
from phcgnn.training.config import TrainingConfig
from phcgnn.training.folder import RunFolder
from phcgnn.training.loggers import LoggerGroup, build_loggers
from phcgnn.training.loop import Epoch, Observer, Trainer
from phcgnn.training.metrics import TASK_METRICS, score
from phcgnn.training.parallel import Processes, synchronise_norms
from phcgnn.training.prepare import prepare
from phcgnn.training.runtime import Runtime
from phcgnn.training.start import START_FILE, save_start
from phcgnn.training.targets import Decoder

__all__ = ["Result", "model_config", "read_result", "train"]

EVALUATION_FACTOR = 4
"""Validation batches are this many times larger than training batches: they hold no gradients."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came out of a run; ``result.json``."""

    scores: dict[str, dict[str, float]]
    """By split, then by metric."""
    metric: str
    parameters: int
    best_epoch: int
    epochs: int
    seconds: float
    ended: str
    """Why training ended."""
    seed: int


def model_config(metadata: StoreMetadata, settings: Mapping[str, Any] | None = None) -> PHCGNNConfig:
    """Return the architecture for a data set: what the data say, and the settings for the rest.

    >>> metadata = StoreMetadata(name="mine", task="multiclass", targets=("kind",), num_classes=3, metric="accuracy",
    ...                          node_features=(28,), edge_features=None)
    >>> config = model_config(metadata, {"n": 2, "width": 64})
    >>> config.targets, config.node_features, config.width
    (3, (28,), 64)
    """
    fixed = {
        "node_features": metadata.node_features,
        "edge_features": metadata.edge_features,
        "targets": metadata.num_classes or len(metadata.targets),
        "task": metadata.level,
    }
    settings = dict(settings or {})
    for name, value in fixed.items():
        given = settings.pop(name, value)
        given = tuple(given) if isinstance(given, list) else None if given == "none" else given
        if given != value:
            raise ValueError(
                f"model.{name} is {given!r} in the settings, but the data set has {value!r}; leave it out."
            )
    return PHCGNNConfig.from_dict({**fixed, **settings})


def train(
    store: GraphStore,
    out: str | Path,
    *,
    model: Mapping[str, Any] | None = None,
    config: TrainingConfig | None = None,
    runtime: Runtime | None = None,
    resume: bool = False,
    overwrite: bool = False,
    observer: Observer | None = None,
    notes: Mapping[str, Any] | None = None,
    record: Mapping[str, str] | None = None,
) -> Result:
    """Train a network on a store with the splits ``train``, ``val`` and, for the final score, ``test``.

    Args:
        store: The data.
        out: The run's folder; it becomes a model folder with the run's record beside.
        model: Settings of the architecture, see :class:`~phcgnn.models.PHCGNNConfig`; the data fix the rest.
        config: How to train.
        runtime: Where.
        resume: Continue the run in ``out``; a finished run is returned as it is.
        overwrite: Start anew even where ``out`` holds a run.
        observer: Told what happens.
        notes: More keys for ``model.json``.
        record: More text files for the folder, by name; written before training starts.

    Raises:
        FileExistsError: ``out`` holds a run.
        Interrupted: A signal asked to stop; ``resume`` continues.
        NonFiniteLoss: The loss became NaN or infinite.
    """
    config = TrainingConfig() if config is None else config
    runtime = Runtime() if runtime is None else runtime
    folder = RunFolder(Path(out))
    folder.require_free(resume=resume, overwrite=overwrite)
    _require_splits(store)
    config.require_fits(store.metadata.task)
    settings = dict(model or {})
    if settings.get("aggregation") == "pna" and "degrees" not in settings:
        settings["degrees"] = _degrees(store)
    architecture = model_config(store.metadata, settings)
    metrics = _metrics(store.metadata, config)
    config.require_shares(runtime.devices)
    fabric, processes = runtime.launch(config.precision)
    config.require_shares(processes.count)
    going_on = processes.first(lambda: folder.open(resume=resume, overwrite=overwrite))
    if resume and folder.finished and not going_on:
        return read_result(folder)  # somebody cleared its checkpoint away

    torch.manual_seed(config.seed)
    store = store.to(fabric.device)
    network = PHCGNN.from_config(architecture, device=fabric.device)
    network.validate = False  # the store has been checked
    if processes.count > 1:
        synchronise_norms(network)
    prepared = prepare(
        store,
        network,
        config,
        compile=runtime.compile,
        wrapped=fabric.setup_module(network),
        backward=fabric.backward,
        processes=processes,
    )
    decoder = prepared.decoder
    recorder = _Recorder(folder, observer or Observer(), processes)
    trainer = Trainer(
        prepared.step,
        prepared.loader,
        store.loader(
            EVALUATION_FACTOR * config.batch_size, split="val", rank=processes.rank, world_size=processes.count
        ),
        config=config,
        decoder=decoder,
        metrics=metrics,
        checkpoint=folder.checkpoint,
        checkpoint_seconds=runtime.checkpoint_seconds,
        identity=_identity(store, architecture, config, processes),
        processes=processes,
        observer=recorder,
    )
    if going_on:
        trainer.resume()
        if folder.finished and trainer.progress.done is not None:
            return read_result(folder)
    else:
        torch.manual_seed(config.seed * processes.count + processes.rank)  # dropout differs from process to process
    with recorder.recording(runtime.loggers, trainer.progress.history):
        if processes.rank == 0:
            _begin(folder, store, architecture, config, record or {}, trainer.progress.history)
            if not going_on:
                save_start(network, folder.path / START_FILE)
        trainer.fit()
        recorder.stepped(prepared.path)
        result, predictions = _conclude(store, trainer, config, metrics)
        if processes.rank == 0:
            save_model(network, folder.path, {**_describe(store.metadata, decoder, config), **(notes or {})})
            if predictions:
                folder.write_rows("test_predictions.csv", predictions)
            folder.write_rows("metrics.csv", trainer.progress.history)
            folder.write_json("result.json", asdict(result))
        processes.first(lambda: None)  # nobody leaves before all is written
    return result


class _Recorder(Observer):
    """Keeps ``metrics.csv`` and the loggers up to date while the run goes on, and passes everything on."""

    def __init__(self, folder: RunFolder, observer: Observer, processes: Processes) -> None:
        self.folder, self.observer, self.first = folder, observer, processes.rank == 0
        self.loggers = LoggerGroup([])

    @contextlib.contextmanager
    def recording(self, names: tuple[str, ...] | None, history: list[dict[str, float | int]]) -> Iterator[None]:
        """Open the loggers, and close them whatever happens."""
        if self.first:
            self.loggers = build_loggers(names, self.folder.path / "log")
            self.loggers.replay(history)
        done = False
        try:
            yield
            done = True
        finally:
            self.loggers.close(success=done)

    def batch(self, epoch: int, done: int, batches: int, graphs: int) -> None:
        if self.first:
            self.observer.batch(epoch, done, batches, graphs)

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        if self.first:
            self.folder.append_row("metrics.csv", epoch.row())
            self.loggers.log(epoch.row())
            self.observer.epoch(epoch, epochs)

    def saved(self, path: Path) -> None:
        self.observer.saved(path)

    def stepped(self, how: str) -> None:
        if self.first:
            self.observer.stepped(how)


def _begin(
    folder: RunFolder,
    store: GraphStore,
    architecture: PHCGNNConfig,
    config: TrainingConfig,
    record: Mapping[str, str],
    history: list[dict[str, float | int]],
) -> None:
    """Write what is known before the first step, and take back the results of a run that goes on."""
    folder.reopen()
    settings = f"[model]\n{architecture.to_toml()}\n[training]\n{config.to_toml()}"
    for name, text in {"config.toml": settings, **record}.items():
        folder.write_text(name, text)
    splits = {name: index.tolist() for name, index in store.splits.items()}
    folder.write_json("splits.json", {"schema": 1, "total": len(store), **splits})
    folder.write_rows("metrics.csv", history)


def _identity(
    store: GraphStore, architecture: PHCGNNConfig, config: TrainingConfig, processes: Processes
) -> dict[str, Any]:
    """Return what has to be the same for a run to be resumed: all but what only says when it ends."""
    ends = {"stop_lr", "stop_patience", "max_time"} | ({"epochs"} if config.schedule != "cosine" else set())
    training = {f"training.{name}": value for name, value in config.to_dict().items() if name not in ends}
    model = {f"model.{name}": value for name, value in architecture.to_dict().items()}
    return {**model, **training, "processes": processes.count, "data": _fingerprint(store)}


def _fingerprint(store: GraphStore) -> str:
    """Return a digest of the targets, the splits and the sizes of the graphs."""
    digest = hashlib.sha256(store.metadata.to_json().encode())
    assert store.y is not None
    for tensor in (store.y, store.node_ptr, store.edge_ptr, *(index for _, index in sorted(store.splits.items()))):
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _require_splits(store: GraphStore) -> None:
    for name in ("train", "val"):
        if name not in store.splits or not len(store.splits[name]):
            there = ", ".join(store.splits) or "none"
            raise DataError(
                f"{store.metadata.name} has no graphs in a split named {name!r} (it has: {there}); training needs "
                "`train` and `val`, and scores `test` if it is there."
            )
    if store.y is None:
        raise DataError(f"{store.metadata.name} has no targets to train on.")


def _metrics(metadata: StoreMetadata, config: TrainingConfig) -> tuple[str, ...]:
    """Return what is scored, the leading metric first."""
    possible = TASK_METRICS[metadata.task]
    leading = config.metric or metadata.metric
    if leading not in possible:
        raise ValueError(
            f"{metadata.name} asks for the metric {leading!r}, but {metadata.task} is scored with "
            f"{', '.join(possible)}; choose one by training.metric."
        )
    return (leading, *(name for name in possible if name != leading))


def _degrees(store: GraphStore) -> tuple[int, ...]:
    """Return how many nodes of the training graphs have 0, 1, 2, ... incoming edges."""
    counts = torch.zeros(1, dtype=torch.int64)
    for batch in store.loader(1024, split="train"):
        found = torch.bincount(torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)).cpu()
        if len(found) > len(counts):
            counts = torch.cat([counts, counts.new_zeros(len(found) - len(counts))])
        counts[: len(found)] += found
    return tuple(counts.tolist())


def _describe(metadata: StoreMetadata, decoder: Decoder, config: TrainingConfig) -> dict[str, Any]:
    """Return what ``model.json`` says beside the architecture: all that prediction needs."""
    return {
        "featuriser": metadata.featuriser,
        "task": metadata.task,
        "targets": list(metadata.targets),
        "classes": None if metadata.class_names is None else list(metadata.class_names),
        "metric": metadata.metric,
        "normalisation": None if decoder.scaler is None else asdict(decoder.scaler),
        "data": metadata.name,
        "seed": config.seed,
    }


def _conclude(
    store: GraphStore, trainer: Trainer, config: TrainingConfig, metrics: tuple[str, ...]
) -> tuple[Result, list[dict[str, object]]]:
    """Score the best weights on what they were not trained on; return the result and the test predictions."""
    scores: dict[str, dict[str, float]] = {}
    rows: list[dict[str, object]] = []
    for split in ("val", "test"):
        if split not in store.splits or not len(store.splits[split]):
            continue
        predictions, targets = trainer.evaluate(store.loader(EVALUATION_FACTOR * config.batch_size, split=split))
        scores[split] = {name: score(name, predictions, targets).mean for name in metrics}
        if split == "test":
            rows = _rows(store, predictions, targets)
    progress = trainer.progress
    result = Result(
        scores=scores,
        metric=metrics[0],
        parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        best_epoch=progress.best_epoch,
        epochs=progress.epoch,
        seconds=round(progress.seconds, 2),
        ended=progress.done or "",
        seed=config.seed,
    )
    return result, rows


def _rows(store: GraphStore, predictions: Tensor, targets: Tensor) -> list[dict[str, object]]:
    """Return a line a test graph: who it is, what is true, what was predicted."""
    metadata, members = store.metadata, store.splits["test"].tolist()
    if metadata.level == "node":
        return []
    multiclass = metadata.task == "multiclass"
    columns = [f"{metadata.targets[0]}_{c}" for c in range(predictions.shape[1])] if multiclass else metadata.targets
    rows = []
    for graph, predicted, true in zip(members, predictions.tolist(), targets.tolist(), strict=True):
        row: dict[str, object] = {"graph": graph}
        if store.ids is not None:
            row["id"] = store.ids[graph]
        if store.smiles is not None:
            row["smiles"] = store.smiles[graph]
        truths = [true] if multiclass else true
        row |= {f"{name}_true": "" if t != t else t for name, t in zip(metadata.targets, truths, strict=True)}
        row |= {f"{name}_predicted": p for name, p in zip(columns, predicted, strict=True)}
        rows.append(row)
    return rows


def read_result(folder: RunFolder) -> Result:
    """Return the result of a finished run; a score that is undefined, and null in the file, is NaN."""
    found = json.loads((folder.path / "result.json").read_text(encoding="utf-8"))
    for by_metric in found["scores"].values():
        by_metric.update({name: math.nan for name, value in by_metric.items() if value is None})
    return Result(**found)
