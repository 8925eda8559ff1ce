"""The few array operations that a batch is made of, once for the host and once for a device.

On the host, numpy does them: for pieces this small, torch would wait for its other threads longer than it works, and on
a machine with other work to do many times longer. On a device, torch does them, and nothing waits for the device: every
size is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["OnDevice", "OnHost", "gathering"]

Array = Any
"""A numpy array on the host, a tensor on a device."""

Index = npt.NDArray[np.int64]


class OnHost:
    """By numpy."""

    needs_owners = False

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.arrays = {name: tensor.numpy() for name, tensor in tensors.items()}

    def send(self, plan: Index) -> Array:
        """Bring a small integer array to where the store is."""
        return plan

    def count(self, size: int) -> Array:
        """Return 0, 1, ... up to ``size``."""
        return np.arange(size)

    def owners(self, counts: Array, total: int) -> Array:
        """Return for each of ``total`` rows the number of the graph that it belongs to."""
        return np.arange(len(counts)).repeat(counts)

    def spread(self, values: Array, counts: Array, owners: Array | None) -> Array:
        """Return for each row the value of its graph."""
        return values.repeat(counts)

    def take(self, name: str, rows: Array, axis: int = 0) -> Array:
        """Return rows of an array of the store."""
        return self.arrays[name].take(rows, axis)

    def fill(self, found: Array, size: int, fill: float, widen: bool) -> Array:
        """Fill up to ``size`` rows, and make integers int64 where ``widen``."""
        dtype = np.int64 if widen and found.dtype.kind in "iu" else found.dtype
        if len(found) == size:
            return found.astype(dtype, copy=False)
        out = np.empty((size, *found.shape[1:]), dtype)
        out[: len(found)], out[len(found) :] = found, fill
        return out

    def join(self, left: Array, right: Array) -> Array:
        """Join two arrays along their last axis."""
        return np.concatenate([left, right], -1)

    def starts(self, sorted_values: Array, size: int) -> Array:
        """Return where each of 0, 1, ... ``size`` would be put into sorted values."""
        return sorted_values.searchsorted(np.arange(size + 1))

    def tensor(self, array: Array) -> Tensor:
        """Return an array as a tensor, without a copy."""
        return torch.from_numpy(array)


class OnDevice:
    """By torch, on the device of the tensors."""

    needs_owners = True

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.arrays = dict(tensors)
        self.device = tensors["edge_index"].device

    def send(self, plan: Index) -> Array:
        """Bring a small integer array to where the store is."""
        here = torch.from_numpy(plan)
        if self.device.type == "cuda":  # from pinned memory, or the copy would wait for the device
            return here.pin_memory().to(self.device, non_blocking=True)
        return here.to(self.device)

    def count(self, size: int) -> Array:
        """Return 0, 1, ... up to ``size``."""
        return torch.arange(size, device=self.device)

    def owners(self, counts: Array, total: int) -> Array:
        """Return for each of ``total`` rows the number of the graph that it belongs to."""
        return torch.repeat_interleave(counts, output_size=total)

    def spread(self, values: Array, counts: Array, owners: Array | None) -> Array:
        """Return for each row the value of its graph."""
        return values.index_select(0, owners)

    def take(self, name: str, rows: Array, axis: int = 0) -> Array:
        """Return rows of an array of the store."""
        return self.arrays[name].index_select(axis, rows)

    def fill(self, found: Array, size: int, fill: float, widen: bool) -> Array:
        """Fill up to ``size`` rows, and make integers int64 where ``widen``."""
        dtype = torch.int64 if widen and not found.is_floating_point() else found.dtype
        if len(found) == size:
            return found.to(dtype)
        out = torch.full((size, *found.shape[1:]), fill, dtype=dtype, device=self.device)
        out[: len(found)] = found
        return out

    def join(self, left: Array, right: Array) -> Array:
        """Join two arrays along their last axis."""
        return torch.cat([left, right], -1)

    def starts(self, sorted_values: Array, size: int) -> Array:
        """Return where each of 0, 1, ... ``size`` would be put into sorted values."""
        return torch.searchsorted(sorted_values, self.count(size + 1))

    def tensor(self, array: Array) -> Tensor:
        """Return an array as a tensor, without a copy."""
        return array


def gathering(tensors: Mapping[str, Tensor]) -> OnHost | OnDevice:
    """Choose by where the tensors are."""
    return OnHost(tensors) if tensors["edge_index"].device.type == "cpu" else OnDevice(tensors)
