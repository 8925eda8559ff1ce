"""What the adapters of all benchmarks share."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from phcgnn.data.benchmarks.files import damaged
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import StoreMetadata
from phcgnn.data.progress import Progress, silent
from phcgnn.data.pyg import FlatDataset, class_numbers
from phcgnn.errors import DataError
from phcgnn.registry import Registry

__all__ = ["DATASETS", "Benchmark", "official_reader", "store_of_splits"]


class Benchmark(ABC):
    """One data set of the paper, read by the official loader and packed.

    Attributes:
        metadata: What the data set says about itself.
        sizes: Graphs in each split, as published.
    """

    metadata: StoreMetadata
    sizes: Mapping[str, int]

    def load(self, root: str | Path = "data", *, check_sizes: bool = True, progress: Progress = silent) -> GraphStore:
        """Read the official files under ``root``, after fetching what is missing, and pack them.

        Args:
            root: The folder that holds, or shall hold, the folders of the official loaders.
            check_sizes: Refuse splits of another size than the published one.
            progress: Called with what is being done, how much of it is done, and of how much.
        """
        store = self.read(Path(root).expanduser(), progress)
        found = {name: len(split) for name, split in store.splits.items()}
        if check_sizes and found != dict(self.sizes):
            wrong = [f"{name} has {found.get(name, 0):,} graphs, not {count:,}" for name, count in self.sizes.items()]
            raise DataError(
                f"{self.metadata.name} under {root} is not the published data set: {'; '.join(wrong)}. Replace the "
                "copy by the official one and delete its folder `processed`, or pass check_sizes=False (--any-size)."
            )
        return store

    @abstractmethod
    def read(self, root: Path, progress: Progress) -> GraphStore:
        """Read whatever is there, of any size."""


DATASETS: Registry[Benchmark] = Registry("data set")
"""The benchmarks by name."""


@contextlib.contextmanager
def official_reader(folder: Path, files: Sequence[str], cache: Path) -> Iterator[None]:
    """Run an official loader quietly, and turn its failures into one message that says what to do.

    Args:
        folder: Where its files are.
        files: Their names.
        cache: Where it keeps what it made of them.
    """
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise _unreadable(folder, files, cache, error) from error
        where = error.filename or cache
        raise DataError(
            f"{where} cannot be written ({error.strerror}), where the official loader keeps what it made of {folder}: "
            "make room or give yourself the right to write there, or copy the folder to where you may, point --root "
            "there, and run again."
        ) from error
    except Exception as error:  # whatever a loader makes of a damaged file
        raise _unreadable(folder, files, cache, error) from error


_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def _unreadable(folder: Path, files: Sequence[str], cache: Path, error: Exception) -> DataError:
    """Say what is wrong with the files, as far as they can tell, and what to do."""
    reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'no reason given')}"
    if broken := damaged(folder, files):
        names = ", ".join(str(folder / name) for name in broken)
        advice = f"{names} is cut short or damaged; replace it by a complete copy"
    elif cache.is_dir():
        advice = f"perhaps {cache} is left from a run that was interrupted; delete it"
    else:
        advice = "replace it by a complete copy"
    return DataError(f"{folder} cannot be read ({reason}): {advice}, and run again.")


def store_of_splits(parts: Mapping[str, FlatDataset], metadata: StoreMetadata) -> GraphStore:
    """Pack data sets that come as one part a split."""
    targets = [part.y for part in parts.values() if part.y is not None]
    y = torch.cat([target.reshape(len(target), -1) for target in targets])
    counts = [len(part.node_counts) for part in parts.values()]
    return GraphStore.from_flat(
        itertools.chain.from_iterable(part.chunks() for part in parts.values()),
        metadata=metadata,
        y=class_numbers(y[:, 0]) if metadata.task == "multiclass" else y.float(),
        splits=dict(zip(parts, _runs(counts), strict=True)),
    )


def _runs(counts: Sequence[int]) -> tuple[Tensor, ...]:
    return torch.arange(sum(counts)).split(list(counts))
