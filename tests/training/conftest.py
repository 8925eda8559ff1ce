"""A tiny data set a task, a tiny network, and processes of their own that start fast."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import socket
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from phcgnn.data import GraphStore, StoreMetadata

sys.path.insert(0, str(Path(__file__).parent))  # where processes of their own find `workers`
workers = importlib.import_module("workers")
recorders = importlib.import_module("recorders")

MODEL = {"n": 2, "width": 8, "layers": 1, "downstream": (8,), "dropout": 0.2, "downstream_dropout": (0.1,)}
TRAINING = {"epochs": 4, "batch_size": 8, "lr": 0.01, "patience": 1}
SIZES = {"train": 30, "val": 8, "test": 7}


def make_store(task="regression", *, targets=("a", "b"), gaps=True, weights=False, seed=0, name="tiny", sizes=SIZES):
    """Random small graphs whose targets can be learned: they are what the nodes carry."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for _ in range(sum(sizes.values())):
        nodes = int(torch.randint(2, 7, (), generator=generator))
        x = torch.randint(0, 5, (nodes, 1), generator=generator)
        edges = torch.randint(0, nodes, (2, 2 * nodes), generator=generator)
        kind = torch.randint(0, 3, (2 * nodes, 1), generator=generator)
        if task == "multiclass":
            y = x.sum() % 3
        else:
            y = torch.stack([x.float().mean() * 10 + 100, edges.float().mean()])[None, : len(targets)]
            y = (y > y.new_tensor([120.0, 1.5])[: len(targets)]).float() if task == "classification" else y
            if gaps and len(targets) > 1 and torch.rand((), generator=generator) < 0.2:
                y[0, 1] = float("nan")
        graphs.append(Data(x=x, edge_index=edges, edge_attr=kind, y=y))
    metadata = StoreMetadata(
        name=name,
        task=task,
        targets=targets[:1] if task == "multiclass" else targets,
        metric={"regression": "mae", "classification": "roc_auc", "multiclass": "accuracy"}[task],
        node_features=(5,),
        edge_features=(3,),
        num_classes=3 if task == "multiclass" else None,
    )
    ends = torch.tensor([0, *sizes.values()]).cumsum(0).tolist()
    splits = {name: torch.arange(*ends[i : i + 2]) for i, name in enumerate(sizes)}
    store = GraphStore.from_pyg(graphs, metadata=metadata, splits=splits)
    if weights:
        store.weights = torch.rand(len(store), generator=generator)
    return store


@pytest.fixture
def store():
    return make_store()


@pytest.fixture
def stored(tmp_path, store):
    path = tmp_path / "tiny.phg"
    store.save(path)
    return str(path)


@pytest.fixture(scope="session")
def processes():
    """Return a context whose processes are forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["phcgnn.training.run", "phcgnn.training.runtime"])
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    finish(start(context, os.getpid))  # the server starts with this environment
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = before
    return context


def start(context, target, *arguments, **options):
    process = context.Process(target=target, args=arguments, kwargs=options, daemon=True)
    process.start()
    return process


def finish(process, seconds=120):
    """Wait for a process; return its exit code."""
    process.join(seconds)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


@contextlib.contextmanager
def ranks(context, count, target, *arguments, **options):
    """Start several processes that train together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        start(context, workers.be_rank, rank, count, port, target, *arguments, **options) for rank in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
