"""Several processes that train one model: what they say to each other, and norms whose statistics span them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Processes"]

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The processes that train together; with one of them every method returns what it was given."""

    rank: int = 0
    count: int = 1

    def sum(self, value: Tensor) -> Tensor:
        """Sum a tensor over the processes."""
        if self.count == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag if self.count == 1 else any(self.collect(flag))

    def collect(self, value: T) -> list[T]:
        """Return what every process holds, in the order of their ranks."""
        if self.count == 1:
            return [value]
        values: list[T | None] = [None] * self.count
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, one rank after the other; they may have different numbers of rows."""
        return rows if self.count == 1 else torch.cat(self.collect(rows))
