"""The data of a reproduction, packed once for all its runs."""

from __future__ import annotations

from pathlib import Path

from phcgnn.data.graphs import GraphStore
from phcgnn.data.progress import Progress, silent
from phcgnn.errors import DataError

__all__ = ["data_at_hand", "packed_store", "provide_store"]

FOLDERS = {"zinc": "ZINC", "mnist": "MNIST", "cifar10": "CIFAR10"}


def packed_store(name: str, out: Path) -> Path:
    """Return where a reproduction keeps a packed data set."""
    return out / "data" / f"{name}.phg"


def data_at_hand(name: str, root: str, out: Path) -> bool:
    """Whether a data set can be opened without a download."""
    raw = Path(root) / FOLDERS.get(name, f"ogbg_{name}")
    return any(path.exists() for path in (Path(root) / f"{name}.phg", packed_store(name, out), raw))


def provide_store(
    name: str, root: str, out: Path, *, any_size: bool = False, progress: Progress = silent
) -> tuple[Path, GraphStore]:
    """Return a benchmark as a packed store, and where it lies; packed into ``out`` if ``root`` holds none.

    Args:
        name: The benchmark.
        root: A folder with ``NAME.phg``, or with the official files.
        out: The reproduction's folder.
        any_size: Accept splits of another size than the published one.
        progress: Told how far it is.

    Raises:
        DataError: The data are not there, damaged, another benchmark's, or of another size.
    """
    from phcgnn.data.benchmarks import DATASETS

    for path in (Path(root) / f"{name}.phg", packed_store(name, out)):
        if path.is_file():
            store = GraphStore.load(path)
            _require_benchmark(store, path, name, any_size)
            return path, store
    store = DATASETS[name].load(root, check_sizes=not any_size, progress=progress)
    path = packed_store(name, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    store.save(path)
    return path, store


def _require_benchmark(store: GraphStore, path: Path, name: str, any_size: bool) -> None:
    """Refuse a store that is not what its name says, as the official files are refused."""
    from phcgnn.data.benchmarks import DATASETS

    benchmark = DATASETS[name]
    if store.metadata.name != benchmark.metadata.name:
        raise DataError(f"{path} holds {store.metadata.name!r}, not {benchmark.metadata.name!r}; replace or rename it.")
    sizes = {split: len(store.splits.get(split, ())) for split in benchmark.sizes}
    if not any_size and sizes != dict(benchmark.sizes):
        wrong = ", ".join(f"{split} {sizes[split]:,} of {count:,}" for split, count in benchmark.sizes.items())
        raise DataError(f"{path} is not the published data set ({wrong} graphs); replace it, or give --any-size.")
