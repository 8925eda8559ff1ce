"""Several processes that train one model: what they say to each other, and norms whose statistics span them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from phcgnn.nn import PHCNorm, WhiteningNorm

__all__ = ["Processes", "SynchronisedNorm", "synchronise_norms"]

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The processes that train together; with one of them every method returns what it was given.

    Args:
        rank: The number of this one.
        count: How many there are.
        talk: A process group on the CPU, for what is no tensor of the device.
    """

    rank: int = 0
    count: int = 1
    talk: Any = None

    def sum(self, value: Tensor) -> Tensor:
        """Sum a tensor over the processes."""
        if self.count == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total

    def any(self, *flags: bool) -> bool:
        """Whether a flag is set in any process."""
        return any(self.each_any(*flags))

    def each_any(self, *flags: bool) -> tuple[bool, ...]:
        """Return of each flag whether it is set in any process."""
        if self.count == 1:
            return flags
        found = torch.tensor(flags, dtype=torch.uint8)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.talk)
        return tuple(bool(flag) for flag in found)

    def collect(self, value: T) -> list[T]:
        """Return what every process holds, in the order of their ranks."""
        if self.count == 1:
            return [value]
        values: list[T | None] = [None] * self.count
        dist.all_gather_object(values, value, group=self.talk)
        return values  # type: ignore[return-value]

    def first(self, act: Callable[[], T]) -> T:
        """Let the first process act; return in all of them what it returned, or raise what it raised."""
        if self.count == 1:
            return act()
        done: list[Any] = [None, None]
        if self.rank == 0:
            try:
                done[0] = act()
            except Exception as error:  # passed on, whatever it is: else the others would wait for ever
                done[1] = error
        dist.broadcast_object_list(done, src=0, group=self.talk)
        if done[1] is not None:
            raise done[1]
        return done[0]


class SynchronisedNorm(PHCNorm):
    """:class:`~phcgnn.nn.PHCNorm` whose batch statistics are taken over the rows of all processes.

    Works wherever the processes can sum a tensor; torch's own ``SyncBatchNorm`` runs on GPUs alone. Costs two sums of
    ``k + 1`` numbers a forward and as many a backward.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (*, k), (*) -> (*, k)
        """Apply the norm."""
        if not self.training or mask is not None:
            return super().forward(x, mask)
        return self._apply_over_all(x.reshape(-1, self.num_features), None).view_as(x)

    def _add(self, value: Tensor) -> Tensor:
        return _Sum.apply(value)


def synchronise_norms(model: nn.Module) -> None:
    """Make every component norm of a model take its statistics over all processes; names and parameters stay."""
    for name, module in model.named_modules():
        if isinstance(module, WhiteningNorm):
            raise ValueError(
                f"{name}: a whitening norm takes its statistics from one process; train on one device, "
                "or with norm='component'."
            )
        if type(module) is PHCNorm:
            module.__class__ = SynchronisedNorm


class _Sum(torch.autograd.Function):
    """The sum over all processes, which the gradient follows into each of them."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total
