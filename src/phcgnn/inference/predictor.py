"""A trained model, or several, as a function from SMILES to numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from phcgnn.data.flat import FlatGraphs
from phcgnn.errors import DataError, require_positive
from phcgnn.inference.description import require_molecular
from phcgnn.models.compact import compact
from phcgnn.models.folder import load_model
from phcgnn.training.folder import seed_folders
from phcgnn.training.targets import Decoder

if TYPE_CHECKING:
    from phcgnn.data.molecules import SmilesError

__all__ = ["CHUNK", "Predictions", "Predictor", "model_folders"]

SAME = ("featuriser", "task", "targets", "classes")
"""What the members of an ensemble have to agree in."""

CHUNK = 512
"""Molecules that go through the stages together; what is predicted for one depends on the others by rounding alone."""

BATCH = {"cpu": 32, "cuda": 512}
"""Molecules a forward pass: on a CPU what its cache holds, on a GPU what keeps it busy."""

MOST_NODES = 32_768
"""A forward pass takes no more atoms than this, unless a single molecule has them: memory stays bounded."""


@dataclass(frozen=True)
class Predictions:
    """What was predicted for some molecules.

    Args:
        mean: ``(N, T)``: values, probabilities of yes, or ``(N, K)`` probabilities of the classes; the mean over the
            ensemble. NaN for a molecule that cannot be read.
        deviation: Of the ensemble's members, likewise; None for a single model.
        errors: One text a molecule, empty where nothing is wrong.
    """

    mean: npt.NDArray[np.float32]
    deviation: npt.NDArray[np.float32] | None
    errors: list[str]


class Predictor:
    """A trained model, or the members of an ensemble, folded for speed and ready to predict.

    Args:
        folders: Model folders, as ``phcgnn train`` writes them.
        device: Where the networks run.
        batch_size: Molecules a forward pass. (default: 32 on a CPU, 512 on a GPU)

    Use :meth:`load` for the folder of one run or of several.

    >>> predictor = Predictor.load("runs/solubility")                                           # doctest: +SKIP
    >>> predictor(["CCO", "C1CC"])                                                              # doctest: +SKIP
    Predictions(mean=array([[0.43], [nan]], dtype=float32), deviation=None, errors=['', 'not a SMILES that ...'])
    """

    def __init__(
        self, folders: Sequence[str | Path], *, device: torch.device | str | None = None, batch_size: int | None = None
    ) -> None:
        if not folders:
            raise ValueError("Predictor: give at least one model folder.")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.batch_size = BATCH.get(self.device.type, 512) if batch_size is None else batch_size
        require_positive("Predictor", batch_size=self.batch_size)
        self.members: list[tuple[nn.Module, Decoder]] = []
        about: dict[str, Any] = {}
        for folder in folders:
            model, metadata = load_model(folder, device=self.device)
            require_molecular(folder, model.config, metadata)
            about = about or metadata
            for key in SAME:
                if metadata.get(key) != about.get(key):
                    raise DataError(
                        f"{folder}: its {key} is {metadata.get(key)!r}, that of {folders[0]} {about.get(key)!r}; "
                        "an ensemble has to agree in it."
                    )
            small = compact(model)
            small.validate = False  # the featuriser keeps to its ranges
            self.members.append((small, Decoder.from_metadata(metadata)))
        self.metadata = about
        self.task: str = about["task"]
        self.targets: tuple[str, ...] = tuple(about["targets"])
        self.classes: tuple[str, ...] | None = None if about.get("classes") is None else tuple(about["classes"])
        self.featuriser: str = about["featuriser"]

    @classmethod
    def load(
        cls, folder: str | Path, *, device: torch.device | str | None = None, batch_size: int | None = None
    ) -> Predictor:
        """Read the model in a folder, or the ensemble in its folders ``seed-0``, ``seed-1``, ..."""
        return cls(model_folders(folder), device=device, batch_size=batch_size)

    @property
    def outputs(self) -> int:
        """Number of columns of :attr:`Predictions.mean`."""
        model = self.members[0][0]
        return int(model.config.targets)  # type: ignore[union-attr, arg-type]

    def __call__(self, smiles: Iterable[str], *, workers: int | None = None) -> Predictions:
        """Predict for SMILES in memory.

        Args:
            smiles: Any number of molecules.
            workers: Processes that make graphs. (default: all cores, where there is enough to do)
        """
        parts = list(self.stream(smiles, workers=workers))
        if not parts:
            empty = np.empty((0, self.outputs), np.float32)
            return Predictions(empty, empty if len(self.members) > 1 else None, [])
        deviations = [part.deviation for part in parts if part.deviation is not None]
        return Predictions(
            np.concatenate([part.mean for part in parts]),
            np.concatenate(deviations) if deviations else None,
            [error for part in parts for error in part.errors],
        )

    def stream(
        self, smiles: Iterable[str], *, workers: int | None = None, chunk: int | None = None
    ) -> Iterator[Predictions]:
        """Predict for a stream of SMILES, a chunk at a time and in order.

        Three stages overlap: processes make graphs, threads run the networks, and the caller does what it likes with
        the result. A few chunks are under way at a time, however long the stream.

        Args:
            smiles: Any iterable, read as far as there is work under way.
            workers: Processes that make graphs. (default: all cores, where there is enough to do)
            chunk: Molecules at a time. (default: 512, or a forward pass where that is more)
        """
        from phcgnn.data.molecules import featurise  # needs rdkit

        chunk = max(CHUNK, self.batch_size) if chunk is None else chunk
        with _Lanes(self.device) as lanes:
            pending: deque[Future[Predictions]] = deque()
            for graphs, refused in featurise(smiles, self.featuriser, workers=workers, chunk=chunk):
                pending.append(lanes.submit(self._chunk, graphs, refused))
                if len(pending) > lanes.count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def _chunk(self, graphs: FlatGraphs, refused: Sequence[SmilesError]) -> Predictions:
        total = len(graphs) + len(refused)
        errors = [""] * total
        for one in refused:
            errors[one.index] = one.reason
        good = np.array([not error for error in errors], dtype=bool)
        values = np.full((len(self.members), total, self.outputs), np.nan, np.float32)
        if len(graphs):
            values[:, good] = self._predict(graphs)
        mean, deviation = values.mean(0), values.std(0) if len(self.members) > 1 else None
        for index in np.flatnonzero(good & ~np.isfinite(mean).all(1)):
            errors[index] = "the network's output is not a finite number"
        return Predictions(mean, deviation, errors)

    def _predict(self, graphs: FlatGraphs) -> npt.NDArray[np.float32]:
        """Return ``(members, G, T)``."""
        results = []
        with torch.inference_mode():
            for batch in _batches(graphs, self.batch_size):
                tensors = [None if part is None else part.to(self.device) for part in batch]
                results.append(torch.stack([decode(model(*tensors)).cpu() for model, decode in self.members]))
        found: npt.NDArray[np.float32] = torch.cat(results, 1).float().numpy()
        return found


class _Lanes:
    """Threads that run networks side by side.

    On a CPU there are as many as torch may use, and each computes alone: small graphs gain more from that than from
    sharing every product, and a chunk's result does not depend on how many there are. A GPU has one.
    """

    def __init__(self, device: torch.device) -> None:
        self.threads = torch.get_num_threads()
        alone = device.type == "cpu"
        self.count = self.threads if alone else 1
        self._pool = ThreadPoolExecutor(
            self.count, thread_name_prefix="predict", initializer=_compute_alone if alone else None
        )
        self.submit = self._pool.submit

    def __enter__(self) -> _Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(self.threads)


def _compute_alone() -> None:
    torch.set_num_threads(1)  # of this thread, and of those that begin later


def model_folders(folder: str | Path) -> list[Path]:
    """Return the model folders under a run's folder: itself, or those of its seeds."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; give what `phcgnn train -o` wrote.")
    if (folder / "model.json").is_file():
        return [folder]
    members = seed_folders(folder)
    ready = [path for path in members if (path / "model.json").is_file()]
    if ready and len(ready) < len(members):
        unfinished = ", ".join(path.name for path in members if path not in ready)
        raise DataError(f"{folder}: {unfinished} did not finish; end it with `phcgnn train --resume`.")
    if not ready:
        raise DataError(f"{folder}: no model in it: there is no model.json. Did the run finish?")
    return ready


def _batches(graphs: FlatGraphs, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor]]:
    """Yield ``(x, edge_index, edge_attr, ptr)`` for ``size`` graphs at a time, or fewer where they are large."""
    node_ptr = np.concatenate([[0], np.cumsum(graphs.node_counts)])
    edge_ptr = np.concatenate([[0], np.cumsum(graphs.edge_counts)])
    start = 0
    while start < len(graphs):
        fitting = int(np.searchsorted(node_ptr, node_ptr[start] + MOST_NODES, side="right")) - 1
        end = max(start + 1, min(start + size, fitting))
        nodes, edges = slice(node_ptr[start], node_ptr[end]), slice(edge_ptr[start], edge_ptr[end])
        ptr = node_ptr[start : end + 1] - node_ptr[start]
        shift = np.repeat(ptr[:-1], graphs.edge_counts[start:end])
        edge_index = graphs.edge_index[:, edges] + shift
        has_edges = graphs.edge_attr.shape[1] > 0
        yield (
            _tensor(graphs.x[nodes]),
            torch.from_numpy(edge_index.astype(np.int64)),
            _tensor(graphs.edge_attr[edges]) if has_edges else None,
            torch.from_numpy(ptr.astype(np.int64)),
        )
        start = end


def _tensor(values: npt.NDArray[np.generic]) -> Tensor:
    wide = values.astype(np.float32 if np.issubdtype(values.dtype, np.floating) else np.int64)
    return torch.from_numpy(wide)
