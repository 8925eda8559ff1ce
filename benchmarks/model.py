"""What folding a network gains, and what the sum over neighbours costs, each against the plain way, in one run.

    python benchmarks/model.py                # fold: ZINC and molhiv networks; neighbours: a ppa-like batch, width 900
    python benchmarks/model.py --device cuda
    python benchmarks/model.py --only neighbours --graphs 8
    python benchmarks/model.py --into docs/model.md                   # and put the tables in the place of those there
    python benchmarks/model.py --lines model.jsonl --into docs/model.md    # of lines measured before

Prints one JSON line a case. Ratios are medians over rounds in which all contenders were timed in turn. A page has a
place for the tables of the CPU and one for those of a GPU: ``<!-- tables: cpu -->`` or ``<!-- tables: cuda -->``, up to
``<!-- end of tables -->``.

fold: a batch of random molecules in eval mode, without gradients: the network as trained (its dense weights are cached
then), the folded network, the compact one that ``phcgnn predict`` runs, and the network without the cache.
neighbours: one layer's h + sum(h_u + e_uv) with seven real features an edge, forward and backward: as here, and as it
is usually written with PyTorch Geometric (embed the edges, gather the nodes, add, scatter).
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from _timing import Step, interleave, machine, median_ratio, peak_bytes
from layer_tables import Line, markdown, put, read
from phcgnn.models import PHCGNN
from phcgnn.models.compact import compact
from phcgnn.models.edges import EdgeBatch
from phcgnn.nn import ContinuousEncoder, PHCConv, fold
from phcgnn.nn.affine import affine
from phcgnn.nn.linear import PHMLinear

NETWORKS = {
    "zinc-100k": {
        "node_features": (28,),
        "edge_features": (4,),
        "n": 5,
        "width": 200,
        "layers": 4,
        "downstream": (180, 80),
    },
    "zinc-400k": {
        "node_features": (28,),
        "edge_features": (4,),
        "n": 16,
        "width": 304,
        "layers": 16,
        "downstream": (304, 176),
    },
    "molhiv": {
        "node_features": (119, 4, 12, 12, 10, 6, 6, 2, 2),
        "edge_features": (5, 6, 2),
        "n": 4,
        "width": 200,
        "layers": 2,
        "downstream": (128, 32),
        "aggregation": "softmax",
    },
}


class Plain(MessagePassing):
    """Sum aggregation as it is usually written."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Sum what the neighbours and the edges carry."""
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """Add the edge to the neighbour."""
        return x_j + edge_attr


class NoCache(PHMLinear):
    """A PHM layer that builds its weight in every forward, also in eval mode."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return affine(x, self.dense_weight(), self.bias)


def graphs(count: int, nodes: int, edges: int, device: str) -> tuple[Tensor, Tensor]:
    """Return the edges of random graphs, sorted by target, and where each graph begins."""
    ptr = torch.arange(count + 1) * nodes
    edge_index = torch.cat([torch.randint(nodes, (2, edges)) + start for start in ptr[:-1]], dim=1)
    return edge_index[:, edge_index[1].argsort()].to(device), ptr.to(device)


def measure_fold(name: str, batch: int, options: argparse.Namespace) -> Line:
    """Time a network in eval mode before and after folding."""
    settings = NETWORKS[name]
    model = PHCGNN(**settings, device=options.device).eval()  # type: ignore[arg-type]
    uncached = copy.deepcopy(model)
    for module in uncached.modules():
        if isinstance(module, PHMLinear):
            module.__class__ = NoCache
    edge_index, ptr = graphs(batch, 24, 52, options.device)
    x, edge_attr = (
        torch.stack([torch.randint(c, (rows,)) for c in settings[kind]], dim=1).to(options.device)  # type: ignore[attr-defined]
        for kind, rows in (("node_features", 24 * batch), ("edge_features", 52 * batch))
    )
    networks = {"phm": model, "folded": fold(model), "compact": compact(model), "phm_uncached": uncached}
    for network in networks.values():
        setattr(network, "validate", False)  # noqa: B010

    def step(network: nn.Module) -> Tensor:
        with torch.no_grad():
            return network(x, edge_index, edge_attr, ptr)

    steps: dict[str, Step] = {key: partial(step, network) for key, network in networks.items()}
    times = interleave(steps, rounds=options.rounds, seconds=options.seconds, cuda=options.device == "cuda")
    outputs = {key: step(network) for key, network in networks.items()}
    scale = outputs["phm"].abs().max()
    apart = max(((outputs["phm"] - outputs[key]).abs().max() / scale).item() for key in ("folded", "compact"))
    return {
        "benchmark": "model-fold",
        "network": name,
        "graphs": batch,
        **{f"{key}_ms": round(statistics.median(values) * 1e3, 3) for key, values in times.items()},
        "folded_to_phm": round(median_ratio(times, "folded", "phm"), 3),
        "compact_to_phm": round(median_ratio(times, "compact", "phm"), 3),
        "phm_to_uncached": round(median_ratio(times, "phm", "phm_uncached"), 3),
        "largest_relative_difference": apart,
    }


def measure_neighbours(options: argparse.Namespace) -> Line:
    """Time the neighbour sum of one layer, forward and backward, and its peak memory."""
    nodes, width = 243 * options.graphs, options.width
    edge_index, _ = graphs(options.graphs, 243, 2266, options.device)
    edge_attr = torch.rand(edge_index.shape[1], 7, device=options.device)
    encoder, conv, plain = ContinuousEncoder(7, width), PHCConv(width, width, 6), Plain()
    encoder.to(options.device)
    h = torch.randn(nodes, width, device=options.device, requires_grad=True)
    gradient = torch.randn_like(h)
    inputs = [h, *encoder.parameters()]

    def ours() -> Tensor:
        edges = EdgeBatch(edge_index, edge_attr, nodes)
        return h + conv.sum_neighbours(h, edges.adjacency, edges.sum_embeddings(encoder))

    def usual() -> Tensor:
        return h + plain(h, edge_index, encoder(edge_attr))

    steps: dict[str, Step] = {
        "ours": lambda: torch.autograd.grad(ours(), inputs, gradient),
        "pyg": lambda: torch.autograd.grad(usual(), inputs, gradient),
    }
    cuda = options.device == "cuda"
    times = interleave(steps, rounds=options.rounds, seconds=options.seconds, cuda=cuda)
    peaks = {key: peak_bytes(step, cuda) for key, step in steps.items()}
    held = {"ours": saved_bytes(ours), "pyg": saved_bytes(usual)}
    return {
        "benchmark": "model-neighbours",
        "nodes": nodes,
        "edges": edge_index.shape[1],
        "width": width,
        "edges_x_width_mb": round(edge_index.shape[1] * width * 4 / 2**20, 1),
        **{f"{key}_ms": round(statistics.median(values) * 1e3, 2) for key, values in times.items()},
        **{f"{key}_peak_mb": round(peak / 2**20, 1) for key, peak in peaks.items()},
        **{f"{key}_saved_mb": round(size / 2**20, 1) for key, size in held.items()},
        "ours_to_pyg": round(median_ratio(times, "ours", "pyg"), 4),
        "largest_difference": (ours() - usual()).abs().max().item(),
    }


def saved_bytes(forward: object) -> int:
    """Return the bytes that autograd keeps from forward to backward, each storage once."""
    kept: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        result = forward()  # type: ignore[operator]
    del result
    return sum(kept.values())


def tables(lines: Sequence[Line]) -> str:
    """Return everything that the lines have tables for, as Markdown."""
    parts = []
    for line in lines[:1]:
        threads = "" if "NVIDIA" in line["device"] else f", {line['threads']} threads"
        parts.append(f"{line['device']}{threads}, torch {line['torch']}, Python {line['python']}, {line['date']}.")
    folds = [line for line in lines if line["benchmark"] == "model-fold"]
    times = {"PHM": "phm_ms", "folded": "folded_ms", "compact": "compact_ms", "uncached": "phm_uncached_ms"}
    ratios = ("folded_to_phm", "compact_to_phm", "phm_to_uncached")
    head = ("network", "graphs", *(f"{name} ms" for name in times), *(name.replace("_", " ") for name in ratios))
    keys = (*times.values(), *ratios)
    rows = [[line["network"], line["graphs"], *(f"{line[key]:.2f}" for key in keys)] for line in folds]
    if folds:
        largest = max(line["largest_relative_difference"] for line in folds)
        said = f"Predictions differ by at most {largest:.1g} of the largest one."
        parts += [markdown(head, rows), said]
    for line in lines:
        if line["benchmark"] == "model-neighbours":
            parts.append(
                f"{line['nodes']:,} nodes, {line['edges']:,} edges, width {line['width']:,}: a tensor of size edges x "
                f"width is {line['edges_x_width_mb']:,} MB."
            )
            measured = {
                "forward + backward, ms": ("ours_ms", "pyg_ms"),
                "most memory at once, MB": ("ours_peak_mb", "pyg_peak_mb"),
                "kept from forward to backward, MB": ("ours_saved_mb", "pyg_saved_mb"),
            }
            rows = [[what, *(f"{line[key]:,.1f}" for key in both)] for what, both in measured.items()]
            parts.append(markdown(("", "here", "as usually written"), rows))
    return "\n\n".join(parts)


def measure(options: argparse.Namespace) -> Iterator[Line]:
    """Measure one case after the other."""
    yield {"benchmark": "model-machine", **machine(options.device)}
    if options.only != "neighbours":
        for name in NETWORKS:
            for batch in options.batch:
                yield measure_fold(name, batch, options)
    if options.only != "fold":
        yield measure_neighbours(options)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--only", choices=("fold", "neighbours"))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 128], help="graphs a batch, for fold")
    parser.add_argument("--graphs", type=int, default=32, help="for neighbours")
    parser.add_argument("--width", type=int, default=900, help="for neighbours")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=6.0, help="for a case")
    parser.add_argument(
        "--lines", type=Path, nargs="+", help="files of lines measured before; nothing is measured then"
    )
    parser.add_argument("--into", type=Path, help="a Markdown page with a place for the tables")
    options = parser.parse_args()
    if options.into is not None and options.only is not None:
        parser.error("--into replaces all tables, so it goes without --only")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.lines is None and options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here")
    lines = []
    for line in measure(options) if options.lines is None else read(options.lines):
        print(json.dumps(line), flush=True)
        lines.append(line)
    if options.into is None:
        return
    try:
        name = "cuda" if "NVIDIA" in lines[0]["device"] else "cpu"
        page = put(options.into.read_text(encoding="utf-8"), name, tables(lines))
    except ValueError as error:
        sys.exit(f"{options.into}: {error}")
    options.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
