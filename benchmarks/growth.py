"""How the cost of a step, an epoch and a prediction grows, one thing varied at a time.

    python benchmarks/growth.py -o growth.jsonl                          # about five minutes on two cores
    python benchmarks/growth.py --quick
    python docs/figures/growth.py growth.jsonl                           # the figures
    python benchmarks/speed_tables.py growth.jsonl --into docs/speed.md

Prints one JSON line a measurement: ``against`` says what is varied, ``value`` its value. Random graphs of the size of
molecules; the network is 200 wide with 4 layers and n = 4 where nothing else is said, the batch 128 graphs. Epochs are
of a small network (40 wide, 2 layers, batch 512), on 2,048 graphs that are repeated to the size wanted; only so do the
largest fit in a minute.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from _timing import interleave, machine, peak_bytes, print_lines
from phcgnn.data import GraphStore
from phcgnn.experiments.bench import Work, prediction, synthetic_store, training
from phcgnn.models import PHCGNN

Line = dict[str, Any]

VALUES: dict[str, tuple[int, ...]] = {
    "n": (1, 2, 4, 5, 8, 10, 20, 40),
    "width": (40, 80, 160, 320, 640),
    "batch_size": (8, 32, 128, 512, 2048),
    "edges_per_node": (2, 4, 8, 16, 32),
    "graphs": (10_000, 50_000, 100_000, 250_000),
    "prediction_batch_size": (1, 4, 16, 64, 256, 1024, 4096),
}
QUICK = {"graphs": (2_000, 4_000), "width": (40, 80), "prediction_batch_size": (1, 64), "batch_size": (8, 32)}


def work(n: int = 4, width: int = 200, layers: int = 4, batch_size: int = 128) -> Work:
    """Return the network of the figures, with what is varied."""
    base = Work.from_preset("zinc-100k-phc5", batch_size=batch_size)
    model = {**base.model, "n": n, "width": width, "layers": layers, "downstream": [width, max(n, width // 2 // n * n)]}
    return replace(base, model=model)


def step_line(against: str, value: int, found: Work, store: GraphStore, options: argparse.Namespace) -> Line:
    """Time a training step and measure its memory."""
    runner = training(found, store, device=options.device)
    cuda = options.device == "cuda"
    times = interleave({"step": runner.step}, rounds=options.rounds, seconds=options.seconds, cuda=cuda)["step"]
    return {
        "benchmark": "growth",
        "against": against,
        "value": value,
        "step_ms": round(statistics.median(times) * 1e3, 3),
        "graphs_per_second": round(runner.graphs / statistics.median(times), 1),
        "peak_mb": round(peak_bytes(runner.step, cuda) / 2**20, 2),
    }


def epochs(sizes: tuple[int, ...], options: argparse.Namespace) -> Iterator[Line]:
    """Time an epoch of training over more and more graphs."""
    few = synthetic_store("zinc", 2048)
    for size in sizes:
        store = few[torch.arange(size) % len(few)]
        store.splits = {"train": torch.arange(size)}
        runner = training(work(width=40, layers=2, batch_size=512), store, device=options.device)
        runner.step()
        steps = -(-size // runner.graphs)
        begun = time.perf_counter()
        for _ in range(steps):
            runner.step()
        if options.device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        yield {
            "benchmark": "growth",
            "against": "graphs",
            "value": size,
            "epoch_s": round(seconds, 3),
            "graphs_per_second": round(size / seconds, 1),
            "store_mb": round(store.nbytes / 2**20, 2),
        }


def lines(options: argparse.Namespace) -> Iterator[Line]:
    """Measure and yield."""
    yield {"benchmark": "growth-machine", **machine(options.device)}
    values = {name: QUICK.get(name, all_[:2]) if options.quick else all_ for name, all_ in VALUES.items()}
    store = synthetic_store("zinc", 256 if options.quick else 4096)
    for n in values["n"]:
        yield step_line("n", n, work(n=n), store, options)
    for width in values["width"]:
        yield step_line("width", width, work(width=width), store, options)
    for size in values["batch_size"]:
        yield step_line("batch_size", size, work(batch_size=size), store, options)
    for degree in values["edges_per_node"]:
        dense = synthetic_store("zinc", 256, edges=24 * degree)
        yield step_line("edges_per_node", degree, work(), dense, options)
    yield from epochs(values["graphs"], options)
    network = training(work(), store, device=options.device, fast=False).network
    assert isinstance(network, PHCGNN)
    for size in values["prediction_batch_size"]:
        run = prediction(network, store.to(options.device), min(size, len(store)))
        cuda = options.device == "cuda"
        times = interleave({"step": run}, rounds=options.rounds, seconds=options.seconds, cuda=cuda)["step"]
        rate = min(size, len(store)) / statistics.median(times)
        yield {
            "benchmark": "growth",
            "against": "prediction_batch_size",
            "value": size,
            "graphs_per_second": round(rate, 1),
        }


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="for a measurement")
    parser.add_argument("--quick", action="store_true", help="few and small values, to see that it runs")
    parser.add_argument("-o", "--output", type=Path, help="write the lines here instead of stdout")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here")
    print_lines(lines(options), options.output)


if __name__ == "__main__":
    main()
