"""Where a run takes place: device, precision, processes; by Lightning Fabric."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

from phcgnn.configuration import FrozenConfig
from phcgnn.errors import require_positive
from phcgnn.training.config import Precision
from phcgnn.training.loggers import require_logger
from phcgnn.training.memory import keep_freed_memory
from phcgnn.training.parallel import Processes

__all__ = ["Device", "Runtime"]

Device = Literal["auto", "cpu", "cuda"]

FABRIC_PRECISION: dict[Precision, Literal["32-true", "bf16-mixed"]] = {
    "fp32": "32-true",
    "tf32": "32-true",
    "bf16": "bf16-mixed",
}

_ours: set[str] = set()
"""What launches in this process have switched on that their caller had not."""


@dataclass(frozen=True, kw_only=True)
class Runtime(FrozenConfig):
    """Where a run takes place; nothing here changes what is learned, but for rounding.

    Args:
        device: ``auto`` takes a GPU where there is one.
        devices: Processes that train one model, one a GPU, or on the CPU each with its share of the cores.
        threads: Of the CPU, for each process. (default: torch's choice)
        compile: Whether a GPU replays a recorded training step where it can, see
            :class:`phcgnn.training.captured.CapturedStep`.
        deterministic: Whether the same seed gives the same bits on a GPU too, at some cost.
        checkpoint_seconds: How often the state is saved, at least.
        loggers: See :func:`phcgnn.training.loggers.build_loggers`. (default: ``tensorboard`` where it is installed)
    """

    device: Device = "auto"
    devices: int = 1
    threads: int | None = None
    compile: bool = True
    deterministic: bool = False
    checkpoint_seconds: float = 60.0
    loggers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("Runtime", devices=self.devices)
        if self.threads is not None:
            require_positive("Runtime", threads=self.threads)
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"Runtime: `checkpoint_seconds` must be at least 0, got {self.checkpoint_seconds!r}.")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("Runtime: device='cuda', but torch sees no GPU; run `phcgnn doctor` for the reason.")
        if self.kind == "cuda" and self.devices > torch.cuda.device_count():
            raise ValueError(
                f"Runtime: `devices` is {self.devices}, but torch sees {torch.cuda.device_count()} GPUs; "
                "give fewer, or device='cpu'."
            )
        for name in self.loggers or ():
            require_logger(name)

    @property
    def kind(self) -> Literal["cpu", "cuda"]:
        """The device that ``auto`` stands for."""
        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        return self.device

    def launch(self, precision: Precision) -> tuple[Fabric, Processes]:
        """Start the processes; return Fabric and what the processes say to each other.

        Fabric starts the others by running this program's command line again: what stands before this call runs in
        each of them.
        """
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it, and reads it once
            if not torch.are_deterministic_algorithms_enabled():
                torch.use_deterministic_algorithms(True)
                _ours.add("deterministic")
        elif "deterministic" in _ours:  # by an earlier run of this process, not by its caller
            torch.use_deterministic_algorithms(False)
            _ours.clear()
        fabric = Fabric(
            accelerator=self.kind,
            devices=self.devices,
            strategy="auto" if self.devices == 1 else _strategy(),
            precision=FABRIC_PRECISION[precision],
        )
        fabric.launch()
        if self.kind == "cpu":
            keep_freed_memory()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        talk = dist.new_group(backend="gloo") if fabric.world_size > 1 else None
        return fabric, Processes(fabric.global_rank, fabric.world_size, talk)


def _strategy() -> DDPStrategy:
    """Average gradients, and leave buffers alone: they are the same everywhere, and evaluation shall not wait."""
    option = "forward_sync_buffers"  # torch 2.13 calls it so
    if option not in inspect.signature(DistributedDataParallel).parameters:
        option = "broadcast_buffers"
    return DDPStrategy(**{option: False})  # type: ignore[arg-type]
