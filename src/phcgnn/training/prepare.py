"""From a store, a network and settings to a training step and its batches, by the fast path where it applies."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import torch
from torch import Tensor, nn

from phcgnn.data.graphs import GraphStore
from phcgnn.data.loader import GraphLoader
from phcgnn.models import PHCGNN, PHCGNNConfig
from phcgnn.training.captured import CapturedStep
from phcgnn.training.closeness import TOLERANCES
from phcgnn.training.config import TrainingConfig
from phcgnn.training.losses import TASK_LOSS
from phcgnn.training.objective import Objective
from phcgnn.training.parallel import Processes
from phcgnn.training.recorder import Recorder
from phcgnn.training.schedule import build_optimizer
from phcgnn.training.step import TrainingStep
from phcgnn.training.targets import Decoder, Scaler, class_weights, graph_weights, positive_weights

__all__ = ["Prepared", "prepare", "reason_for_plain"]

_log = logging.getLogger("phcgnn")

AGGREGATIONS = ("sum", "mean", "min", "max", "softmax", "var", "std")
POOLINGS = ("attention", "sum", "mean", "max", "min")
"""Those known to have sizes that do not depend on values, and to leave ghosts to themselves."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What training needs.

    Attributes:
        step: The step; on the fast path a :class:`CapturedStep`.
        loader: The batches for it: of the split ``train``, shuffled.
        decoder: From what the network returns to predictions.
        plain: Why the plain path is taken; None where the fast one is.
    """

    step: TrainingStep | CapturedStep
    loader: GraphLoader
    decoder: Decoder
    plain: str | None

    @property
    def path(self) -> str:
        """Which path the step takes; see :attr:`CapturedStep.path`."""
        return self.step.path if isinstance(self.step, CapturedStep) else f"plain: {self.plain}"


def prepare(
    store: GraphStore,
    network: PHCGNN,
    config: TrainingConfig,
    *,
    compile: bool = True,
    fuse: bool = True,
    check: bool = True,
    kernels: bool | None = None,
    wrapped: nn.Module | None = None,
    backward: Callable[[Tensor], None] = Tensor.backward,
    processes: Processes | None = None,
    recorder: Recorder | None = None,
    say: Callable[[str], None] | None = None,
) -> Prepared:
    """Make the training step and its batches.

    On the fast path batches are padded to one shape and the step is recorded, see :class:`CapturedStep`; they hold the
    same graphs as on the plain path, so that a run may change from one to the other.

    Args:
        store: The data, with a split ``train``, on the device of the network.
        network: What is trained; on the fast path its inputs are not validated any more.
        config: How.
        compile: Whether the fast path is taken where it applies.
        fuse: Whether it fuses operations of a layer by ``torch.compile``, which takes a while once.
        check: Whether it compares itself with the plain path first.
        kernels: Whether it uses our own kernels. (default: where they are found to be faster)
        wrapped: The network as it is to be called, e.g. by Fabric. (default: under autocast for ``bf16``, else itself)
        backward: What takes the gradients of a loss.
        processes: The processes that train together.
        recorder: What records; given, the fast path is not limited to a GPU.
        say: Told in a line which path is taken. (default: the log)
    """
    processes = Processes() if processes is None else processes
    say = functools.partial(_log.info, "%s") if say is None else say
    targets = training_targets(store)
    decoder = Decoder(store.metadata.task, Scaler.fit(targets) if config.standardise else None)
    if wrapped is None and config.precision == "bf16":
        wrapped = _Autocast(network, store.device.type)
    simple = TrainingStep(
        network,
        build_optimizer(config.optimizer, network.parameters(), lr=config.lr, weight_decay=config.weight_decay),
        _objective(store, config, targets),
        scaler=decoder.scaler,
        gradient_clip=config.gradient_clip,
        processes=processes,
        network=wrapped,
        backward=backward,
    )
    plain = reason_for_plain(network, config, processes, store.device, recorder) if compile else "it was asked for"
    step: TrainingStep | CapturedStep = simple
    if plain is None:
        network.validate = False  # a store has been checked, and the host would wait for the device
        fuses = fuse and recorder is None and importlib.util.find_spec("triton") is not None
        step = CapturedStep(
            simple,
            recorder=recorder,
            compile=functools.partial(compile_for, network.config) if fuses else None,
            tolerance=TOLERANCES[config.precision] if check else None,
            kernels=kernels,
            say=say,
        )
    elif store.device.type == "cuda" and compile:
        say(f"the plain path is taken, as {plain}")
    loader = store.loader(
        config.batch_size // processes.count,
        shuffle=True,
        generator=config.seed,
        split="train",
        draw=graph_weights(targets, store.metadata.num_classes) if config.class_balance == "sampling" else None,
        pad=plain is None,
        cut=False,
        csr=plain is None,
        rank=processes.rank,
        world_size=processes.count,
    )
    return Prepared(step=step, loader=loader, decoder=decoder, plain=plain)


def reason_for_plain(
    network: PHCGNN,
    config: TrainingConfig,
    processes: Processes,
    device: torch.device,
    recorder: Recorder | None = None,
) -> str | None:
    """Return why the fast path does not apply; None where it does.

    >>> network = PHCGNN(node_features=(5,), edge_features=None, width=8, aggregation="median")
    >>> reason_for_plain(network, TrainingConfig(), Processes(), torch.device("cuda"))
    "aggregation='median' is none of sum, mean, min, max, softmax, var, std"
    """
    about = network.config
    if device.type != "cuda" and recorder is None:
        return f"a {device.type.upper()} replays nothing"
    if processes.count > 1:
        return f"{processes.count} processes train together"
    if about.norm == "whitening":
        return "norm='whitening' factorises matrices, for which the host waits"
    for name in about.aggregators if about.aggregation == "pna" else (about.aggregation,):
        if name not in AGGREGATIONS:
            return f"aggregation={name!r} is none of {', '.join(AGGREGATIONS)}"
    if about.task == "graph" and about.pooling not in POOLINGS:
        return f"pooling={about.pooling!r} is none of {', '.join(POOLINGS)}"
    if config.optimizer not in ("adam", "adamw"):
        return f"the optimizer {config.optimizer!r} is neither adam nor adamw"
    return None


@functools.lru_cache(maxsize=64)
def compile_for(config: PHCGNNConfig, update: FunctionType, backend: str = "inductor") -> Callable[..., Tensor]:
    """Compile the update of an architecture's layers; done once, however many runs follow one another.

    Each architecture compiles a copy of the function, as torch gives up a function that it has compiled eight times.
    """
    own = FunctionType(update.__code__.replace(), update.__globals__, update.__name__, update.__defaults__)
    return torch.compile(own, fullgraph=True, dynamic=False, backend=backend)


class _Autocast(nn.Module):
    """A network in bfloat16 where that does no harm."""

    def __init__(self, network: nn.Module, device_type: str) -> None:
        super().__init__()
        self.network, self.device_type = network, device_type

    def forward(self, batch: object) -> Tensor:
        with torch.autocast(self.device_type, torch.bfloat16):
            return self.network(batch)


def training_targets(store: GraphStore) -> Tensor:
    """Return the targets of the training graphs, on the CPU."""
    assert store.y is not None
    if store.metadata.level == "node":
        ptr = store.node_ptr
        rows = [torch.arange(int(ptr[i]), int(ptr[i + 1])) for i in store.splits["train"].tolist()]
        return store.y.cpu()[torch.cat(rows)]
    return store.y.cpu()[store.splits["train"]]


def _objective(store: GraphStore, config: TrainingConfig, targets: Tensor) -> Objective:
    task = store.metadata.task
    positive = classes = None
    if config.class_balance == "weights" and task == "classification":
        positive = positive_weights(targets).to(store.device)
    elif config.class_balance == "weights":
        classes = class_weights(targets, store.metadata.num_classes or 0).to(store.device)
    return Objective(
        loss=config.loss or TASK_LOSS[task],
        lambda1=config.lambda1,
        lambda2=config.lambda2,
        penalty_scale=config.penalty_scale,
        positive_weights=positive,
        class_weights=classes,
    )
