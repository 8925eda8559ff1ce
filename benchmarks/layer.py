"""Time and peak memory of ``PHMLinear`` against ``nn.Linear`` and against the textbook way, in one run.

    python benchmarks/layer.py                        # the case of the docs: 6,000 rows, 304 -> 304, two threads
    python benchmarks/layer.py --sweep                # widths 64 to 2,048: from how many rows on it costs under 10%
    python benchmarks/layer.py --device cuda --sweep --precision tf32

Prints one JSON line a case. Ratios are medians over rounds in which all contenders were timed in turn. The textbook way
is the layer as it is usually written: a stack of ``torch.kron`` products, summed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from _timing import interleave, machine, median_ratio, peak_bytes
from phcgnn.nn import PHMLinear

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


def capture(step: Callable[[], object]) -> Callable[[], object]:
    """Record a step as a CUDA graph, so that what is timed are its kernels and not their launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
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
            cheap = [rows for rows in ratios if all(r < 1.10 for larger, r in ratios.items() if larger >= rows)]
            summary = {"width": width, "n": n, "precision": options.precision, "captured": options.capture}
            emit({"benchmark": "layer-break-even", **summary, "rows": min(cheap, default=None), "tried": max(ratios)})


def emit(line: dict[str, object]) -> None:
    """Print one JSON line."""
    print(json.dumps(line), flush=True)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--rows", type=int, nargs="+", default=[6000])
    parser.add_argument("--width", type=int, nargs="+", default=[304])
    parser.add_argument("--n", type=int, nargs="+", default=list(DIMENSIONS))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=6.0, help="for a case")
    parser.add_argument("--longest-ms", type=float, default=400.0, help="of nn.Linear, where a sweep over rows stops")
    parser.add_argument("--sweep", action="store_true", help="over widths and row counts, in training")
    parser.add_argument("--capture", action="store_true", help="time the replay of a CUDA graph")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("no CUDA device here")
        torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    emit({"benchmark": "layer-machine", **machine(options.device)})
    if options.sweep:
        sweep(options)
        return
    for width in options.width:
        for rows in options.rows:
            for n in options.n:
                for train in (True, False):
                    emit(measure(width, n, rows, train, options, options.seconds, textbook=True))


if __name__ == "__main__":
    main()
