"""Our kernels against torch's operations, one by one, at the sizes of a batch; part of ``step.py`` on a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from _timing import interleave
from phcgnn.experiments.bench import synthetic_store
from phcgnn.models.edges import EdgeBatch, EdgeEncoder
from phcgnn.models.weighing import weigh_neighbours
from phcgnn.nn import CategoricalEncoder, ContinuousEncoder, SoftmaxAggregation, kernels
from phcgnn.training.recorder import CudaRecorder

__all__ = ["kernel_lines"]

SIZES = {"zinc": (256, 304), "molhiv": (128, 200), "ppa": (32, 900)}
"""Graphs of a batch, and width: ZINC 400K, molhiv, and dense graphs as those of ppa."""

Operation = Callable[[], Tensor]


def kernel_lines(device: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield a line for the sum and one for the softmax at each size.

    Both sides are recorded, so that the device alone is timed: forward, and forward with backward. What they give is
    compared in turn; ``difference`` is the largest, of results and gradients, relative to the largest of each.
    """
    for data, (graphs, width) in SIZES.items():
        store = synthetic_store(data, graphs).to(device)
        batch = next(iter(store.loader(graphs, split="train", pad=True, cut=False, csr=True)))
        features, encoder = store.metadata.edge_features, cast("EdgeEncoder | None", None)
        torch.manual_seed(0)
        if isinstance(features, tuple):
            encoder = CategoricalEncoder(features, width, device=device)
            encoder.validate = False
        elif features is not None:
            encoder = ContinuousEncoder(features, width, device=device)
        h = torch.randn(int(batch.num_nodes), width, device=device, requires_grad=True)
        gradient, aggregation = torch.randn_like(h), SoftmaxAggregation(device=device)
        edges = EdgeBatch(batch.edge_index, batch.edge_attr, len(h), batch.rowptr)
        size = {"like": data, "nodes": len(h), "edges": batch.edge_index.shape[1], "width": width}
        inputs = [h, aggregation.beta, *(encoder.parameters() if encoder is not None else ())]
        operations: dict[str, tuple[dict[str, Operation], list[Tensor]]] = {
            "sum": (dict.fromkeys(("kernel", "torch"), partial(edges.adjacency.sum, h)), [h]),
            "softmax": (
                {
                    "kernel": partial(weigh_neighbours, h, aggregation.beta, encoder, edges),
                    "torch": partial(_weigh, h, aggregation, encoder, edges),
                },
                inputs,
            ),
        }
        for name, (contenders, wanted) in operations.items():
            found = _compare(contenders, wanted, gradient, torch.device(device), seconds)
            yield {"benchmark": "step-kernel", "operation": name, **size, **found}


def _weigh(h: Tensor, aggregation: nn.Module, encoder: EdgeEncoder | None, edges: EdgeBatch) -> Tensor:
    source, target = edges.edge_index
    sent = h.index_select(0, source)
    if encoder is not None and edges.edge_attr is not None:
        sent = sent + encoder(edges.edge_attr)
    weighed: Tensor = aggregation(sent, target, dim_size=len(h))
    return weighed


def _compare(
    contenders: dict[str, Operation], inputs: list[Tensor], gradient: Tensor, device: torch.device, seconds: float
) -> dict[str, float]:
    recorder, results = CudaRecorder(device), {}
    steps: dict[str, Callable[[], object]] = {}
    for name, operation in contenders.items():

        def forward(operation: Operation = operation, name: str = name) -> None:
            with kernels.use(name == "kernel"), torch.no_grad():
                operation()

        def both(operation: Operation = operation, name: str = name) -> None:
            with kernels.use(name == "kernel"):
                y = operation()
            results[name] = [y.detach(), *torch.autograd.grad(y, inputs, gradient)]

        for kind, work in (("forward", forward), ("both", both)):
            recorder.ahead(work)
            recorder.ahead(work, strict=True)
            steps[f"{kind}_{name}"] = recorder.record(work)
            steps[f"{kind}_{name}"]()
    times = interleave(steps, rounds=5, seconds=seconds, cuda=True)
    torch.cuda.synchronize()
    pairs = zip(results["kernel"], results["torch"], strict=True)
    difference = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)
    micro = {f"{name}_us": round(statistics.median(values) * 1e6, 2) for name, values in times.items()}
    return {**micro, "difference": difference}
