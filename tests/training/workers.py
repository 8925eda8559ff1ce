"""What the tests of training run in processes of their own; imported there by its bare name."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from phcgnn import PHCGNN
from phcgnn.data import GraphStore
from phcgnn.training import loop
from phcgnn.training.config import TrainingConfig
from phcgnn.training.objective import Objective
from phcgnn.training.parallel import Processes, synchronise_norms
from phcgnn.training.run import train
from phcgnn.training.runtime import Runtime
from phcgnn.training.step import TrainingStep


def run(store, out, model, training, *, runtime=None, **options):
    """Train as a user of the library does."""
    torch.set_num_threads(1)
    train(
        GraphStore.load(store),
        out,
        model=model,
        config=TrainingConfig(**training),
        runtime=Runtime(device="cpu", **(runtime or {})),
        **options,
    )


def run_and_die_writing(store, out, model, training, *, where, saves, runtime):
    """Train, and be killed within the given save: before the file is on the disk, or just before it takes its name."""
    real = getattr(os, where)
    before = Path(out) / "checkpoints"

    def die(*arguments):
        nonlocal saves
        if any(before.glob(".last.*.part")):
            saves -= 1
            if saves == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)

    setattr(os, where, die)
    run(store, out, model, training, runtime=runtime)


def run_and_report(store, out, model, training, report, **options):
    """Train; write down how it ended."""
    try:
        run(store, out, model, training, **options)
        found = "done"
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    Path(report).write_text(found)


def run_until_signalled(store, out, model, training, report, *, number, again=False, runtime=None):
    """Train, and send the signal to oneself in the third step: a moment as good as any."""

    class Signalling(loop.Observer):
        def batch(self, epoch, done, batches, graphs):
            if done == 3:
                os.kill(os.getpid(), number)
                if again:
                    os.kill(os.getpid(), number)

    run_and_report(store, out, model, training, report, runtime=runtime, observer=Signalling())


def be_rank(rank, count, port, target, /, *arguments, **options):
    """Be one of several processes, as a launcher sets them up."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "LOCAL_RANK": str(rank),
        "NODE_RANK": "0",
        "WORLD_SIZE": str(count),
    }
    globals()[target](*arguments, **options)


def steps(store, out, model, *, batch_size, epochs, count, clip):
    """Take steps in float64 and write down the losses and, by rank, the weights at the end."""
    torch.set_num_threads(1)
    data = GraphStore.load(store)
    _, processes = Runtime(device="cpu", devices=count).launch("fp32")
    torch.manual_seed(0)
    network = PHCGNN(**model, dtype=torch.float64)
    network.validate = False
    wrapped = None
    if count > 1:
        synchronise_norms(network)
        wrapped = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    objective = Objective(loss="mse", lambda1=0.1, lambda2=0.1, penalty_scale="one")
    step = TrainingStep(network, optimizer, objective, gradient_clip=clip, processes=processes, network=wrapped)
    loader = data.loader(
        batch_size // count, shuffle=True, generator=7, split="train", rank=processes.rank, world_size=count
    )
    losses = []
    for _ in range(epochs):
        for batch in loader:
            batch.y = batch.y.double()
            losses.append(processes.sum(torch.stack(step(batch, 0.05))).tolist())
    state = {name: value.double().tolist() for name, value in network.state_dict().items()}
    Path(f"{out}.{processes.rank}").write_text(json.dumps({"losses": losses, "state": state}))


def talk(out):
    """Write down what the processes say to each other."""
    _, processes = Runtime(device="cpu", devices=2).launch("fp32")
    rank = processes.rank
    assert isinstance(processes, Processes)
    raised = ""
    try:
        processes.first(lambda: 1 // rank)
    except ZeroDivisionError as error:
        raised = str(error)
    found = {
        "sum": processes.sum(torch.tensor([1.0, rank])).tolist(),
        "any": processes.any(rank == 1),
        "each": processes.each_any(rank == 0, rank == 1, False),
        "collect": processes.collect(f"rank {rank}"),
        "first": processes.first(lambda: f"from {rank}"),
        "raised": raised,
    }
    Path(f"{out}.{rank}").write_text(json.dumps(found))


def run_until_the_disk_is_full(store, out, model, training, report, *, saves, size, runtime=None):
    """Train; after so many saves no file may grow beyond a size, as on a disk without room."""

    class Filling(loop.Observer):
        def saved(self, path):
            nonlocal saves
            saves -= 1
            if saves == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    run_and_report(store, out, model, training, report, runtime=runtime, observer=Filling())


def run_unprivileged(store, out, model, training, report, **options):
    """Train as somebody whom permissions stop, which they do not do to root."""
    data = GraphStore.load(store)
    report = open(report, "w")  # noqa: SIM115 - while it may be opened
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        train(data, out, model=model, config=TrainingConfig(**training), runtime=Runtime(device="cpu", **options))
    except OSError as error:
        report.write(f"{type(error).__name__}: {error}")
    report.close()
