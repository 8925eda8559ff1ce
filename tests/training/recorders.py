"""Stand-ins for a CUDA graph, on the CPU."""

from __future__ import annotations

import functools

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal")
"""Operations for which the host waits for a device, or whose result has a size that depends on values."""


class Again:
    """Replays by doing the work again."""

    def ahead(self, work, *, strict=False):
        work()

    def record(self, work):
        return work


class Watch(TorchDispatchMode):
    """Changes nothing but that torch's own operations are done, as in a recording, and none that are for a CPU alone.

    Both do the same, but draw the random numbers of dropout in another order.
    """

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        return operation(*arguments, **(keywords or {}))


class Tape:
    """Replays the very operations of the recording, on the same memory and with the same numbers baked in.

    That is what a CUDA graph does: Python runs once, and a replay sees nothing but what stands in the tensors.
    """

    def __init__(self, seconds=()):
        self.operations, self.timed = [], list(seconds)

    def ahead(self, work, *, strict=False):
        with _Recording([]) if strict else Watch():
            work()

    def record(self, work):
        self.operations = []
        with _Recording(self.operations):
            work()
        return functools.partial(self._replay, self.operations)

    def seconds(self, replay):
        """Replay it, and say what the tape was told to say."""
        replay()
        return self.timed.pop(0)

    @staticmethod
    @torch.no_grad()
    def _replay(operations):
        for operation, arguments, keywords, outputs in operations:
            found, _ = tree_flatten(operation(*arguments, **keywords))
            for old, new in zip(outputs, found, strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class _Recording(TorchDispatchMode):
    def __init__(self, operations):
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        name = operation.overloadpacket.__name__
        assert not any(name.startswith(wait) for wait in WAITS), f"{name} waits for the device"
        result = operation(*arguments, **(keywords or {}))
        outputs, _ = tree_flatten(result)
        plain = [out.detach() if isinstance(out, torch.Tensor) else out for out in outputs]
        strip = [
            torch.utils._pytree.tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, part)
            for part in (arguments, keywords or {})
        ]
        self.operations.append((operation, *strip, plain))
        return result
