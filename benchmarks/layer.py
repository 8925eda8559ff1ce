"""Time and peak memory of ``PHMLinear`` against ``nn.Linear`` and against the textbook way, in one run.

    python benchmarks/layer.py                        # the case of the docs: 6,000 rows, 304 -> 304, two threads
    python benchmarks/layer.py --sweep                # widths 64 to 2,048: from how many rows on it costs under 10%
    python benchmarks/layer.py --device cuda --sweep --precision tf32
    python benchmarks/layer.py --device cuda --suite -o h200.jsonl    # the tables of the docs, in about 45 seconds

Prints one JSON line a case, and writes them to a file as well if one is given; ``benchmarks/layer_tables.py`` makes the
tables of ``docs/layers.md`` of that. Ratios are medians over rounds in which all contenders were timed in turn. The
textbook way is the layer as it is usually written: a stack of ``torch.kron`` products, summed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from _timing import interleave, machine, median_ratio, peak_bytes
from phcgnn.nn import PHMLinear
from phcgnn.nn.affine import Affine
from phcgnn.training.memory import keep_freed_memory

PRECISIONS = ("float32", "tf32", "bfloat16", "autocast")
WIDTHS = (64, 128, 256, 512, 1024, 2048)
DIMENSIONS = (2, 4, 8, 16)
ROWS = {
    "cpu": (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
    "cuda": (256, 1024, 4096, 16384, 65536, 262144, 1048576),
}


class Textbook(PHMLinear):
    """The layer as it is usually written."""

    def forward(self, x: Tensor) -> Tensor:
        """Stack the Kronecker products and sum them."""
        products = [torch.kron(c.to(w.dtype), w) for c, w in zip(self.rule.constants, self.weight, strict=True)]
        return nn.functional.linear(x, torch.stack(products).sum(0), self.bias)


def make_step(layer: nn.Module, x: Tensor, train: bool, autocast: bool) -> Callable[[], object]:
    """Return one forward and backward pass, or one forward pass without gradients."""
    gradient = torch.randn(len(x), x.shape[1], device=x.device, dtype=torch.bfloat16 if autocast else x.dtype)
    if train:
        x = x.clone().requires_grad_()

    def context() -> contextlib.AbstractContextManager[object]:
        return torch.autocast(x.device.type, torch.bfloat16) if autocast else contextlib.nullcontext()

    inputs = [x, *layer.parameters()]

    def train_step() -> object:
        with context():
            y = layer(x)
        return torch.autograd.grad(y, inputs, gradient)

    def eval_step() -> None:
        with torch.no_grad(), context():
            layer(x)

    return train_step if train else eval_step


def capture(step: Callable[[], object], pool: Any = None) -> Callable[[], object]:
    """Record a step as a CUDA graph, so that what is timed are its kernels and not their launches.

    Graphs of one pool share their memory: their results overwrite one another, which no timing minds.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    return graph.replay


def measure(
    width: int, n: int, rows: int, train: bool, options: argparse.Namespace, seconds: float, textbook: bool
) -> dict[str, object]:
    """Time one case."""
    device, precision = torch.device(options.device), options.precision
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    x = torch.randn(rows, width, device=device, dtype=dtype)
    layers: dict[str, nn.Module] = {
        "linear": nn.Linear(width, width, device=device, dtype=dtype),
        "phm": PHMLinear(
            width, width, n, rule_start="uniform", weight_start="folded-glorot", device=device, dtype=dtype
        ),
    }
    if textbook:
        layers["textbook"] = Textbook(width, width, n, rule_start="uniform", device=device, dtype=dtype)
    cuda = device.type == "cuda"
    if not cuda:  # the plain layer with the product that PHM layers use, which on some processors is not nn.Linear's
        layers["affine"] = Affine(width, width, dtype=dtype)
    steps = {name: make_step(layer.train(train), x, train, precision == "autocast") for name, layer in layers.items()}
    if options.capture:
        steps = {name: capture(step) for name, step in steps.items()}
    times = interleave(steps, rounds=options.rounds, seconds=seconds, cuda=cuda)
    line: dict[str, object] = {
        "benchmark": "layer",
        "captured": options.capture,
        "precision": precision,
        "pass": "forward+backward" if train else "forward, eval",
        "rows": rows,
        "width": width,
        "n": n,
        "ratio_to_linear": round(median_ratio(times, "phm", "linear"), 4),
    }
    if not cuda:
        line["ratio_to_affine"] = round(median_ratio(times, "phm", "affine"), 4)
    for name in layers:
        line[f"{name}_ms"] = round(statistics.median(times[name]) * 1e3, 4)
        if not options.capture:
            line[f"{name}_peak_mb"] = round(peak_bytes(steps[name], cuda) / 2**20, 3)
    return line


def sweep(options: argparse.Namespace) -> None:
    """Print, for every width and n, the measured row counts and the one from which the layer costs under 10% more."""
    for width in WIDTHS:
        for n in DIMENSIONS:
            ratios: dict[int, float] = {}
            for rows in ROWS[options.device]:
                line = measure(width, n, rows, True, options, options.seconds, textbook=rows == 1024)
                emit(line)
                ratios[rows] = float(str(line["ratio_to_linear"]))
                if len(ratios) > 2 and all(ratio < 1.10 for ratio in list(ratios.values())[-3:]):
                    break
                if float(str(line["linear_ms"])) > options.longest_ms:
                    break
            emit_break_even(ratios, width=width, n=n, precision=options.precision, captured=options.capture)


def suite(options: argparse.Namespace) -> None:
    """Print all that the docs say about a device: 304 -> 304 in every way, then from how many rows on it costs little.

    For each precision, width and number of rows ``nn.Linear`` and the layer for every n are timed in turn, as graphs on
    a GPU. Row counts rise until the layer has cost under 10% more twice running for every n, or a step takes too long.
    """
    began, cuda = time.perf_counter(), options.device == "cuda"
    precisions = ("float32", "tf32", "bfloat16") if cuda else ("float32",)
    for precision in precisions:
        for captured in (True, False) if cuda else (False,):
            compare(304, 6000, DIMENSIONS, True, precision, captured, options, textbook=True)
        compare(304, 6000, DIMENSIONS, False, precision, False, options, textbook=True)
    for precision in precisions:
        for width in WIDTHS:
            ratios: dict[int, dict[int, float]] = {n: {} for n in DIMENSIONS}
            for rows in ROWS[options.device]:
                if time.perf_counter() - began > options.budget:
                    emit({"benchmark": "layer-cut-short", "precision": precision, "width": width, "rows": rows})
                    break
                lines = compare(width, rows, DIMENSIONS, True, precision, cuda, options, textbook=False)
                for line in lines:
                    ratios[int(line["n"])][rows] = float(line["ratio_to_linear"])
                growth = ROWS[options.device][1] / ROWS[options.device][0]
                if all(len(of_n) > 1 and max(list(of_n.values())[-2:]) < 1.10 for of_n in ratios.values()):
                    break
                if lines[0]["linear_ms"] * growth > options.longest_ms:
                    break
            for n, of_n in ratios.items():
                emit_break_even(of_n, width=width, n=n, precision=precision, captured=cuda)
    emit({"benchmark": "layer-suite", "seconds": round(time.perf_counter() - began, 1)})


def compare(
    width: int,
    rows: int,
    dimensions: tuple[int, ...],
    train: bool,
    precision: str,
    captured: bool,
    options: argparse.Namespace,
    *,
    textbook: bool,
) -> list[dict[str, Any]]:
    """Time ``nn.Linear`` and the layers of several n in turn; print and return one line an n."""
    set_tf32(precision)
    device, dtype = torch.device(options.device), torch.bfloat16 if precision == "bfloat16" else torch.float32
    x = torch.randn(rows, width, device=device, dtype=dtype)
    layers: dict[str, nn.Module] = {"linear": nn.Linear(width, width, device=device, dtype=dtype)}
    for n in dimensions:
        layers[f"phm-{n}"] = PHMLinear(
            width, width, n, rule_start="uniform", weight_start="folded-glorot", device=device, dtype=dtype
        )
        if textbook:
            layers[f"textbook-{n}"] = Textbook(width, width, n, rule_start="uniform", device=device, dtype=dtype)
    steps = {name: make_step(layer.train(train), x, train, False) for name, layer in layers.items()}
    if captured:
        pool = torch.cuda.graph_pool_handle()
        steps = {name: capture(step, pool) for name, step in steps.items()}
    seconds = options.timing_ms / 1e3 * options.rounds * len(steps)
    times = interleave(steps, rounds=options.rounds, seconds=seconds, cuda=device.type == "cuda")
    lines = []
    for n in dimensions:
        line: dict[str, Any] = {
            "benchmark": "layer",
            "captured": captured,
            "precision": precision,
            "pass": "forward+backward" if train else "forward, eval",
            "rows": rows,
            "width": width,
            "n": n,
            "ratio_to_linear": round(median_ratio(times, f"phm-{n}", "linear"), 4),
            "linear_ms": round(statistics.median(times["linear"]) * 1e3, 4),
            "phm_ms": round(statistics.median(times[f"phm-{n}"]) * 1e3, 4),
        }
        if textbook:
            line["textbook_ms"] = round(statistics.median(times[f"textbook-{n}"]) * 1e3, 4)
        emit(line)
        lines.append(line)
    return lines


def emit_break_even(ratios: dict[int, float], **case: object) -> None:
    """Print the number of rows from which on the layer costs under 10% more."""
    cheap = [rows for rows in ratios if all(r < 1.10 for larger, r in ratios.items() if larger >= rows)]
    tried = max(ratios, default=None)
    emit({"benchmark": "layer-break-even", **case, "rows": min(cheap, default=None), "tried": tried})


def set_tf32(precision: str) -> None:
    """Let float32 products round their factors to TF32, or not."""
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


_copies: list[TextIO] = []


def emit(line: dict[str, Any]) -> None:
    """Print one JSON line, and write it to the file."""
    for file in (sys.stdout, *_copies):
        print(json.dumps(line), file=file, flush=True)


def cases(options: argparse.Namespace) -> None:
    """Print the widths, rows and dimensions that were asked for, in training and in eval."""
    for width in options.width:
        for rows in options.rows:
            for n in options.n:
                for train in (True, False):
                    emit(measure(width, n, rows, train, options, options.seconds, textbook=True))


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--rows", type=int, nargs="+", default=[6000])
    parser.add_argument("--width", type=int, nargs="+", default=[304])
    parser.add_argument("--n", type=int, nargs="+", default=list(DIMENSIONS))
    parser.add_argument("--rounds", type=int, help="of timings (default: 25, for --suite 7)")
    parser.add_argument("--seconds", type=float, default=6.0, help="for a case")
    parser.add_argument("--longest-ms", type=float, help="of nn.Linear, where row counts end (400, for --suite 40)")
    parser.add_argument("--suite", action="store_true", help="the tables of the docs, quickly")
    parser.add_argument("--timing-ms", type=float, default=2.0, help="least length of one timing, for --suite")
    parser.add_argument("--budget", type=float, default=45.0, help="seconds after which --suite measures no more rows")
    parser.add_argument("-o", "--output", type=Path, help="a file for the JSON lines, besides the printing")
    parser.add_argument("--sweep", action="store_true", help="over widths and row counts, in training")
    parser.add_argument("--capture", action="store_true", help="time the replay of a CUDA graph")
    options = parser.parse_args()
    options.rounds = options.rounds or (7 if options.suite else 25)
    options.longest_ms = options.longest_ms or (40.0 if options.suite else 400.0)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    keep_freed_memory()  # as training does; else the first case pays for the heap to grow
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here")
    set_tf32(options.precision)
    with contextlib.ExitStack() as stack:
        if options.output is not None:
            _copies.append(stack.enter_context(options.output.open("w", encoding="utf-8")))
        emit({"benchmark": "layer-machine", **machine(options.device)})
        if options.suite:
            suite(options)
        elif options.sweep:
            sweep(options)
        else:
            cases(options)


if __name__ == "__main__":
    main()
