"""A training step and a prediction, whole: on a GPU against the floor, on a CPU against the network written plainly.

    phcgnn data prepare zinc --root DIR -o zinc.phg                      # once, where the data are
    python benchmarks/step.py --device cuda --store zinc.phg -o h200.jsonl        # within 200 s
    python benchmarks/step.py --device cpu --store zinc.phg --store molhiv.phg -o cpu.jsonl

Prints one JSON line a case, as it is measured. Without ``--store`` random graphs of the same sizes stand in, and the
lines say so. It takes torch, torch_geometric and this package alone: neither RDKit nor OGB.

On a GPU: our own kernels against torch's operations, one by one (``_kernels.py``). Then the ZINC 400K presets and the
same widths on ``nn.Linear``, molhiv, and networks of the size of molpcba's and ppa's, each on the fast path of
``phcgnn train`` and launched operation by operation without these kernels. The fast path records a step with them and
without: ``kernels_ms`` and ``without_kernels_ms`` are the replays of both, ``path`` says which was kept. A step
assembles the batch, runs forward and backward, clips and updates. ``floor_ms`` is what its bytes and operations take at
the rates of ``--tflops`` and ``--bandwidth``; :func:`count` says how they are counted.

On a CPU: ZINC 100K PHC-5 and molhiv PHC-4 here and in ``_plain.py``. After some steps the weights and statistics are
copied, and the outputs of the network, of its compact copy and of the plain network with its weights built once are
compared with those of the plain one; a difference above 1e-4 of the largest output ends it. Both train by the fused
Adam and predict in inference mode. Then what the processor does when it multiplies matrices and copies memory, and
where a step's time goes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from _kernels import kernel_lines
from _plain import PlainNetwork, copy_weights, folded
from _timing import Step, interleave, machine, median_ratio, print_lines
from phcgnn.data import GraphStore
from phcgnn.experiments.bench import Work, forever, prediction, synthetic_store, training
from phcgnn.models import PHCGNN, PHCGNNConfig
from phcgnn.models.compact import compact
from phcgnn.nn import kernels as own_kernels
from phcgnn.nn.affine import affine, uses_onednn
from phcgnn.training.captured import CapturedStep
from phcgnn.training.memory import keep_freed_memory

Line = dict[str, Any]

OURS_AND_PLAIN = ("zinc-100k-phc5", "molhiv-phc4")

FIRST_STEPS = 5
"""Before outputs are compared: running means of 0 and variances of 1 would hide a norm that was merged wrongly."""

TOLERANCE = 1e-4
"""Of the largest output. A wrong weight, norm or sum changes more; a hundred roundings of float32 one after the other,
through layers that each may amplify them, stay below."""


class Memory(InMemoryDataset):
    """The graphs of a store as PyG holds a data set in memory."""

    def __init__(self, graphs: list[Data]) -> None:
        super().__init__(None)
        self.data, self.slices = self.collate(graphs)


def count(config: PHCGNNConfig, nodes: float, edges: float, graphs: float) -> tuple[float, float]:
    """Count the operations and the bytes that a training step cannot do without.

    Operations: two for each multiplication of a matrix product, with the dense weight, forward once and backward twice
    (for the input and for the weight); building the dense weights from the rule costs ``n`` multiplications an entry,
    forward and twice backward. All else is left out.

    Bytes: each tensor of size rows x width (four bytes an entry) is read or written where it has to go through memory
    with everything fused that can be: messages, forward one read and one write, backward the same (gathered rows are
    found in the cache); a product, forward the same, backward two reads and one write; a norm with what follows it,
    forward one read and one write (its statistics are taken in the product before), backward two reads for the sums,
    then two reads and one write; a skip, one read and one write. Weights are read twice and written once as gradients,
    and the optimizer reads four and writes three numbers a parameter.
    """
    width, n = config.width, config.n
    each = 2 if config.mp_mlp else 1
    products = [(nodes, width, width)] * (config.layers * each + 1) + [(nodes, width, width // n)]
    last = width
    for hidden in config.downstream:
        products.append((graphs, last, hidden))
        last = hidden
    operations = sum(6 * rows * a * b for rows, a, b in products)
    entries = sum(a * b for _, a, b in products)
    operations += 0 if config.dense else 6 * n * entries
    per_layer = 4 + each * (5 + 7) + 2
    moved = nodes * width * (config.layers * per_layer + 8)
    if config.aggregation == "softmax":
        moved += 2 * edges * width * config.layers
    parameters = entries if config.dense else entries / n
    return float(operations), float(4 * (moved + 3 * entries + 7 * parameters))


def rows_of(store: GraphStore, graphs: int) -> tuple[float, float]:
    """Return the nodes and edges of an average batch."""
    share = graphs / len(store)
    return int(store.node_ptr[-1]) * share, int(store.edge_ptr[-1]) * share


def kernels(step: Step) -> int:
    """Count the kernels that a step launches on a GPU."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, activity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    return sum(event.count for event in profile.key_averages() if event.device_type.name == "CUDA")


def gpu_works() -> Iterator[tuple[Work, dict[str, Any]]]:
    """Yield what is measured on a GPU, the most important first, with what a stand-in for its data is like."""
    for n in (16, 5, 1, 4, 2, 8):
        yield Work.from_preset(f"zinc-400k-phc{n}"), {"graphs": 4096}
        yield Work.from_preset(f"zinc-400k-phc{n}", dense=True), {"graphs": 4096}
    for name in ("molhiv-phc4", "molhiv-phc1"):
        yield Work.from_preset(name), {"graphs": 4096}
    for name in ("molpcba-phc4", "molpcba-phc1"):
        yield Work.from_preset(name), {"graphs": 2048, "targets": 128}
    yield Work.from_preset("ppa-phc6", batch_size=32), {"graphs": 128}


def measure_on_gpu(work: Work, store: GraphStore, options: argparse.Namespace) -> Line:
    """Time the fast path and the plain one.

    ``_peak_mb`` is the most memory reserved from before preparation on, what the fast path compares itself with
    included; ``_held_mb`` is what stays reserved between steps.
    """
    device = options.device
    runners, memory, first = {}, {}, {}
    for name in ("fast", "plain"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()
        runners[name] = training(work, store, device=device, fast=name == "fast")
        if name == "plain":
            runners[name].step = partial(_without_kernels, runners[name].step)
        begun = time.perf_counter()
        runners[name].step()
        torch.cuda.synchronize()
        first[name] = time.perf_counter() - begun
        for _ in range(3):
            runners[name].step()
        torch.cuda.synchronize()
        # A recorded step's memory is reserved when it is recorded: later steps show none of it
        memory[f"{name}_peak_mb"] = torch.cuda.max_memory_reserved() - before
        torch.cuda.empty_cache()
        memory[f"{name}_held_mb"] = torch.cuda.memory_reserved() - before
    steps = {name: runner.step for name, runner in runners.items()}
    times = interleave(steps, rounds=5, seconds=options.seconds, cuda=True)
    config = work.config(store.metadata)
    size = runners["fast"].graphs
    taken = runners["fast"].taken
    replays = taken.seconds if isinstance(taken, CapturedStep) else {}
    operations, moved = count(config, *rows_of(store, size), size)
    step = statistics.median(times["fast"])
    return {
        **case(work, config, store),
        "batch_size": size,
        "step_ms": round(step * 1e3, 4),
        "plain_ms": round(statistics.median(times["plain"]) * 1e3, 4),
        "plain_to_fast": round(median_ratio(times, "plain", "fast"), 2),
        "graphs_per_second": round(size / step),
        "kernels_ms": _milliseconds(replays.get("with kernels")),
        "without_kernels_ms": _milliseconds(replays.get("without kernels")),
        "path": taken.path if isinstance(taken, CapturedStep) else "plain",
        "fast_path": runners["fast"].why_plain or "used",
        "compiled": runners["fast"].compiled,
        "first_step_s": round(first["fast"], 2),
        **{name: round(bytes_ / 2**20, 1) for name, bytes_ in memory.items()},
        **{f"{name}_kernels": kernels(run) for name, run in steps.items()},
        "tf32": options.tf32,
        **floor(operations, moved, options),
    }


def _without_kernels(step: Step) -> object:
    with own_kernels.use(False):
        return step()


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 4)


def floor(operations: float, moved: float, options: argparse.Namespace) -> Line:
    """Return what bytes and operations take at the given rates."""
    seconds = max(operations / (options.tflops * 1e12), moved / (options.bandwidth * 1e12))
    return {
        "gflop": round(operations / 1e9, 2),
        "mbyte": round(moved / 1e6, 1),
        "floor_ms": round(seconds * 1e3, 4),
    }


def case(work: Work, config: PHCGNNConfig, store: GraphStore) -> Line:
    """Return what names a case."""
    return {
        "benchmark": "step",
        "preset": work.name,
        "n": config.n,
        "dense": config.dense,
        "width": config.width,
        "layers": config.layers,
        "data": store.metadata.name,
    }


def measure_on_cpu(preset: str, store: GraphStore, options: argparse.Namespace) -> Line:
    """Time our path and the plain network, training and prediction, after their outputs were compared."""
    work = Work.from_preset(preset)
    config, store = work.config(store.metadata), store[slice(0, options.graphs)]
    store.splits = {"train": torch.arange(len(store))}
    store.ids = store.smiles = None
    runner = training(work, store)
    network, plain = runner.network, PlainNetwork(config)
    assert isinstance(network, PHCGNN)
    for _ in range(FIRST_STEPS):
        runner.step()
    copy_weights(network, plain)
    batch = store.batch(range(runner.graphs))
    network.eval()
    plain.eval()
    plain_folded = folded(plain)
    with torch.inference_mode():
        expected = plain(batch)
        found = torch.stack([other(batch) for other in (network, compact(network), plain_folded)])
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        sys.exit(f"{preset}: the networks differ by {difference:.1e} of the largest output; nothing was timed")
    predict: dict[str, Step] = {"ours": prediction(network, store, runner.graphs)}
    dataset = Memory(list(store))
    for name, other in (("plain", plain), ("plain_folded", plain_folded)):
        predict[name] = partial(_predict, other, forever(DataLoader(dataset, runner.graphs)))
    seconds = options.seconds
    predicted = interleave(predict, rounds=options.rounds, seconds=seconds, cuda=False)
    network.train()
    plain.train()
    shuffled = forever(DataLoader(dataset, runner.graphs, shuffle=True))
    steps: dict[str, Step] = {"ours": runner.step, "plain": _plain_step(work, plain, shuffled)}
    times = interleave(steps, rounds=options.rounds, seconds=2 * seconds, cuda=False)
    line: Line = {**case(work, config, store), "batch_size": runner.graphs, "largest_relative_difference": difference}
    for what, taken in (("training", times), ("prediction", predicted)):
        for name, values in taken.items():
            line[f"{name}_{what}_graphs_per_second"] = round(runner.graphs / statistics.median(values), 1)
            if name != "ours":
                line[f"{what}_times_{name}"] = round(median_ratio(taken, name, "ours"), 2)
    return line


def _predict(plain: PlainNetwork, batches: Iterator[Any]) -> object:
    with torch.inference_mode():
        return plain(next(batches))


def _plain_step(work: Work, plain: PlainNetwork, batches: Iterator[Any]) -> Step:
    config = work.training
    optimizer = torch.optim.Adam(plain.parameters(), lr=config.lr, fused=True)
    loss_of = F.binary_cross_entropy_with_logits if work.data.startswith("mol") else F.l1_loss

    def step() -> object:
        batch = next(batches)
        loss = loss_of(plain(batch), batch.y.view(-1, plain.config.targets).float())
        loss = loss + config.lr * config.lambda1 * plain.weight_penalty()
        optimizer.zero_grad()
        loss.backward()
        assert config.gradient_clip is not None
        torch.nn.utils.clip_grad_norm_(plain.parameters(), config.gradient_clip)
        optimizer.step()
        return loss

    return step


def capability(seconds: float) -> Line:
    """Measure what the processor does at best: products of 6,000 x 200 by 200 x 200, and copies of as many numbers."""
    x, weight, bias = torch.randn(6000, 200), torch.randn(200, 200), torch.randn(200)
    big, into = torch.randn(2**25), torch.empty(2**25)
    small = torch.empty_like(x)
    with torch.no_grad():
        steps: dict[str, Step] = {
            "here": lambda: affine(x, weight, bias),
            "torch": lambda: F.linear(x, weight, bias),
            "copy": lambda: small.copy_(x),
            "copy_big": lambda: into.copy_(big),
        }
        times = interleave(steps, rounds=9, seconds=seconds, cuda=False)
    best = {name: min(values) for name, values in times.items()}
    operations = 2 * 6000 * 200 * 200
    return {
        "benchmark": "step-capability",
        "onednn": uses_onednn(),
        "product_gflops": round(operations / best["here"] / 1e9, 1),
        "torch_linear_gflops": round(operations / best["torch"] / 1e9, 1),
        "copy_in_cache_gb_s": round(2 * x.nbytes / best["copy"] / 1e9, 1),
        "copy_from_memory_gb_s": round(2 * big.nbytes / best["copy_big"] / 1e9, 1),
    }


def profile(preset: str, store: GraphStore, steps: int = 5, shown: int = 14) -> Iterator[Line]:
    """Yield the operations of a training step that take longest by themselves, and how fast the products run."""
    work = Work.from_preset(preset)
    runner = training(work, store)
    runner.step()
    runner.step()
    begun = time.perf_counter()
    for _ in range(steps):
        runner.step()
    whole = (time.perf_counter() - begun) / steps
    with torch.profiler.profile() as found:
        for _ in range(steps):
            runner.step()
    rows = sorted(found.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in rows)
    config = work.config(store.metadata)
    operations, moved = count(config, *rows_of(store, runner.graphs), runner.graphs)
    names = ("mkldnn::_linear_pointwise", "aten::convolution_backward", "aten::mm", "aten::addmm", "aten::bmm")
    products = sum(event.self_cpu_time_total for event in rows if event.key in names) / total * whole
    head = {**case(work, config, store), "benchmark": "step-profile", "batch_size": runner.graphs}
    yield {
        **head,
        "step_ms": round(whole * 1e3, 2),
        "gflop": round(operations / 1e9, 2),
        "mbyte": round(moved / 1e6, 1),
        "products_share": round(products / whole, 3),
        "products_gflops": round(operations / products / 1e9, 1),
    }
    for event in rows[:shown]:
        share = event.self_cpu_time_total / total
        yield {
            **head,
            "benchmark": "step-operation",
            "operation": event.key,
            "calls": round(event.count / steps, 1),
            "share": round(share, 4),
            "ms": round(share * whole * 1e3, 3),
        }


def stores(options: argparse.Namespace) -> dict[str, GraphStore]:
    """Load the stores given, by the name of their data; splits other than the training one are left out."""
    found = {}
    for path in options.store:
        store = GraphStore.load(path)
        store.ids = store.smiles = None
        chosen = store[store.splits["train"]] if "train" in store.splits else store
        chosen.splits = {"train": torch.arange(len(chosen))}
        found[store.metadata.name] = chosen
    return found


def lines(options: argparse.Namespace) -> Iterator[Line]:
    """Measure and yield."""
    yield {"benchmark": "step-machine", **machine(options.device)}
    given, begun = stores(options), time.perf_counter()
    if options.device == "cuda":
        if not options.only and own_kernels.why_not(torch.device("cuda")) is None:
            yield from kernel_lines("cuda", options.seconds / 4)
        for work, like in gpu_works():
            if options.only and work.name not in options.only:
                continue
            if time.perf_counter() - begun > options.budget:
                yield {"benchmark": "step-cut-short", "preset": work.name, "dense": bool(work.model.get("dense"))}
                continue
            store = given.get(work.data) or synthetic_store(work.data, **like)
            try:
                yield measure_on_gpu(work, store, options)
            except torch.OutOfMemoryError as error:
                yield {"benchmark": "step-failed", "preset": work.name, "reason": str(error).splitlines()[0]}
            torch.cuda.empty_cache()
        return
    keep_freed_memory()  # as training does; for both
    yield capability(options.seconds / 4)
    for preset in options.only or OURS_AND_PLAIN:
        data = Work.from_preset(preset).data
        store = given.get(data) or synthetic_store(data, options.graphs)
        yield measure_on_cpu(preset, store, options)
        yield from profile(preset, store)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--store", type=Path, action="append", default=[], help="a .phg file; may be given repeatedly")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--graphs", type=int, default=2048, help="of each data set, on a CPU")
    parser.add_argument("--rounds", type=int, default=7, help="on a CPU")
    parser.add_argument("--seconds", type=float, help="for a case (default: 20 on a CPU, 2 on a GPU)")
    parser.add_argument("--budget", type=float, default=170.0, help="begin no case after so many seconds (GPU)")
    parser.add_argument("--only", nargs="*", help="presets (default: all)")
    parser.add_argument("--tf32", action="store_true", help="let matrix products round to TF32 (GPU)")
    parser.add_argument("--tflops", type=float, help="of the GPU (default: an H200's, nominal: 67, or 494 in TF32)")
    parser.add_argument("--bandwidth", type=float, default=4.8, help="TB/s of the GPU (default: an H200's, nominal)")
    parser.add_argument("-o", "--output", type=Path, help="write the lines here instead of stdout")
    options = parser.parse_args()
    options.seconds = options.seconds or (2.0 if options.device == "cuda" else 20.0)
    torch.set_num_threads(options.threads)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here")
    options.tflops = options.tflops or (494.0 if options.tf32 else 67.0)
    if options.tf32:
        torch.set_float32_matmul_precision("high")
    print_lines(lines(options), options.output)


if __name__ == "__main__":
    main()
