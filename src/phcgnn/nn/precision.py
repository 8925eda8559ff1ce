"""What stays in float32 when a model is moved to bfloat16 or float16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["NARROW", "at_least_float32", "keep_wide"]

NARROW = (torch.bfloat16, torch.float16)


def at_least_float32(dtype: torch.dtype | None) -> torch.dtype | None:
    """Return float32 for a narrower type, torch's default type included; the argument itself otherwise.

    >>> at_least_float32(torch.bfloat16), at_least_float32(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.float32 if (dtype or torch.get_default_dtype()) in NARROW else dtype


def keep_wide(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the move ``fn`` of ``nn.Module._apply`` for a tensor that goes to any device, but no narrow type."""

    def move(tensor: Tensor) -> Tensor:
        moved = fn(tensor)
        if moved.dtype in NARROW and tensor.dtype not in NARROW:
            return tensor.to(moved.device, torch.float32)
        return moved

    return move
