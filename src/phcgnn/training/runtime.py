"""Where a run takes place: device, precision, processes; by Lightning Fabric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from lightning.fabric import Fabric

from phcgnn.errors import require_positive
from phcgnn.training.config import Precision
from phcgnn.training.parallel import Processes

__all__ = ["Device", "Runtime"]

Device = Literal["auto", "cpu", "cuda"]

FABRIC_PRECISION: dict[Precision, Literal["32-true", "bf16-mixed"]] = {
    "fp32": "32-true",
    "tf32": "32-true",
    "bf16": "bf16-mixed",
}


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Where a run takes place; nothing here changes what is learned, but for rounding.

    Args:
        device: ``auto`` takes a GPU where there is one.
        devices: Processes, one a device (on the CPU: one a share of the cores).
        deterministic: Whether the same seed gives the same bits on a GPU too, at some cost.
        checkpoint_seconds: How often the state is saved, at least.
        loggers: Names of Fabric loggers: ``csv``, ``tensorboard``, or any class of ``lightning.fabric.loggers``.
    """

    device: Device = "auto"
    devices: int = 1
    deterministic: bool = False
    checkpoint_seconds: float = 60.0
    loggers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive("Runtime", devices=self.devices)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("Runtime: device='cuda', but torch sees no GPU; run `phcgnn doctor` for the reason.")

    def launch(self, precision: Precision) -> tuple[Fabric, Processes]:
        """Start the processes; return Fabric and what the processes say to each other."""
        kind = ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device
        high = "high" if precision == "tf32" else "highest"
        torch.set_float32_matmul_precision(high)
        if self.deterministic:
            torch.use_deterministic_algorithms(True)
        fabric = Fabric(
            accelerator=kind,
            devices=self.devices,
            strategy="auto" if self.devices == 1 else "ddp",
            precision=FABRIC_PRECISION[precision],
        )
        fabric.launch()
        return fabric, Processes(fabric.global_rank, fabric.world_size)
