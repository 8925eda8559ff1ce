"""Batches a second of a packed store against PyG's ``DataLoader``, in one run.

    phcgnn data prepare zinc --root DIR -o zinc.phg
    phcgnn data prepare molhiv --root DIR -o molhiv.phg
    python benchmarks/loading.py --store zinc.phg --batch-size 256      # against DataLoader, two threads
    python benchmarks/loading.py --store zinc.phg --batch-size 256 --device cuda --workers 0 4
    python benchmarks/loading.py --store zinc.phg molhiv.phg --batch-size 256 128 --into docs/data.md

The folder of this checkout's ``src`` has to be importable (``pip install -e .``, or ``PYTHONPATH=src``); torch,
torch_geometric and the store file are all else that it takes: no RDKit, no OGB, no official files.

Prints one JSON line a case; ``--into`` also puts a table of them into a page, between ``<!-- tables: loading-cpu -->``
(or ``loading-cuda``) and ``<!-- end of tables -->``. A round times whole epochs in turn; ratios are medians over
rounds. The ``DataLoader`` reads the same graphs from memory, without texts, with its best number of worker processes
out of ``--workers``; on a GPU its batches are copied there, as a training loop would do. ``cpu_ms_a_batch`` is what the
main process spent on the CPU, which other work on the machine hardly lengthens; what workers spend is not in it. A
store on a GPU makes its batches there; a round ends when the GPU has finished the last of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from _timing import machine
from layer_tables import markdown, put, require_place
from phcgnn.data import GraphStore

Epoch = Callable[[], int]


class Memory(InMemoryDataset):
    """The graphs of a store as PyG holds a data set in memory."""

    def __init__(self, graphs: list[Data]) -> None:
        super().__init__(None)
        self.data, self.slices = self.collate(graphs)


def counted(batches: Iterable[Batch], device: str, limit: int, *, copied: bool) -> Epoch:
    """Return a run over an epoch, or its first batches; it counts them, and waits for the device at the end.

    Args:
        batches: One epoch an iteration.
        device: Where the batches are wanted.
        limit: The most batches of an epoch; 0 takes all.
        copied: Whether the batches are made on the CPU and have to be copied to the device.
    """

    def run() -> int:
        done = 0
        for batch in batches:
            if copied and device != "cpu":
                batch.to(device, non_blocking=True)
            done += 1
            if done == limit:
                break
        if device == "cuda":
            torch.cuda.synchronize()
        return done

    return run


def timed(run: Epoch) -> tuple[float, float]:
    """Return seconds a batch, by the clock and of this process on the CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    batches = run()
    return (time.perf_counter() - clock) / batches, (time.process_time() - cpu) / batches


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, nargs="+", help=".phg files")
    parser.add_argument("--split", default="train")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[256], help="one for all stores, or one a store")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2], help="of the DataLoader; none leaves it out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=int, default=0, help="batches of an epoch that a round takes; 0: all")
    parser.add_argument("--into", type=Path, help="a Markdown page with a place for the table, e.g. docs/data.md")
    options = parser.parse_args()
    sizes = options.batch_size * (len(options.store) if len(options.batch_size) == 1 else 1)
    if len(sizes) != len(options.store):
        sys.exit(f"{len(options.store)} stores and {len(sizes)} batch sizes: give one for all, or one a store")
    place = f"loading-{options.device}"
    if options.into is not None:
        require_place(options.into, place)
    torch.set_num_threads(options.threads)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here")
    warnings.filterwarnings("ignore", message=".*worker process.*")

    about = machine(options.device)
    emit({"benchmark": "loading-machine", **about})
    lines = [line for path, size in zip(options.store, sizes, strict=True) for line in measure(path, size, options)]
    if options.into is not None:
        where = f"{about['device']}" + (f", {about['threads']} threads" if options.device == "cpu" else "")
        text = f"{where}, torch {about['torch']}, Python {about['python']}, {about['date']}.\n\n{table(lines)}"
        options.into.write_text(put(options.into.read_text(encoding="utf-8"), place, text), encoding="utf-8")


def measure(path: Path, batch_size: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time one store against the ``DataLoader``; print and return a line a case."""
    store = GraphStore.load(path)
    megabytes = round(store.nbytes / 1e6, 1)
    store = store[store.splits[options.split]] if options.split in store.splits else store
    store.ids = store.smiles = None  # the DataLoader would spend time on lists of them
    emit({"benchmark": "loading-store", "store": repr(store), "whole_megabytes": megabytes})
    here = store.to(options.device)
    kinds = {"store": {}, "store padded": {"pad": True}, "store compact": {"compact": True}, "store csr": {"csr": True}}
    cases: dict[str, Epoch] = {}
    for name, kind in kinds.items():
        loader = here.loader(batch_size, shuffle=True, generator=0, **kind)  # type: ignore[arg-type]
        cases[name] = counted(loader, options.device, options.limit, copied=False)
    dataset = Memory(list(store)) if options.workers else None
    for workers in options.workers:
        official = DataLoader(
            dataset,
            batch_size,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=options.device == "cuda",
        )
        cases[f"pyg, {workers} workers"] = counted(official, options.device, options.limit, copied=True)

    times: dict[str, list[float]] = {name: [] for name in cases}
    busy: dict[str, list[float]] = {name: [] for name in cases}
    for run in cases.values():  # once for nothing: page in, start workers
        run()
    for _ in range(options.rounds):
        for name, run in cases.items():
            clock, cpu = timed(run)
            times[name].append(clock)
            busy[name].append(cpu)
    rivals = [name for name in cases if name.startswith("pyg")]
    best = min(rivals, key=lambda name: statistics.median(times[name]), default=None)
    lines = []
    for name, seconds in times.items():
        line: dict[str, Any] = {
            "benchmark": "loading",
            "data": store.metadata.name,
            "whole_megabytes": megabytes,
            "batch_size": batch_size,
            "case": name,
            "ms_a_batch": round(statistics.median(seconds) * 1e3, 4),
            "batches_a_second": round(1 / statistics.median(seconds), 1),
            "cpu_ms_a_batch": round(statistics.median(busy[name]) * 1e3, 4),
        }
        if best is not None:
            ratios = [rival / own for own, rival in zip(seconds, times[best], strict=True)]
            line["times_the_best_of_pyg"] = round(statistics.median(ratios), 2)
        emit(line)
        lines.append(line)
    return lines


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return the lines as a Markdown table."""
    head = ("data", "MB", "batch size", "batches from", "ms a batch", "batches a second", "times the best of PyG")
    rows = []
    for line in lines:
        times = [f"{line['ms_a_batch']:.3f}", f"{line['batches_a_second']:,.0f}"]
        ratio = f"{line['times_the_best_of_pyg']:.1f}" if "times_the_best_of_pyg" in line else "not compared"
        rows.append([line["data"], line["whole_megabytes"], line["batch_size"], line["case"], *times, ratio])
    return markdown(head, rows)


def emit(line: dict[str, Any]) -> None:
    """Print one JSON line."""
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
