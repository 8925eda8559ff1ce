"""Whether kernels of our own are used."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["Use", "refused", "takes", "use", "wanted", "why_not"]

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass
class Use:
    """Whether kernels are wanted, and how often they were taken since."""

    wanted: bool
    taken: int = 0


_uses = [Use(wanted=False)]


@contextlib.contextmanager
def use(wish: bool) -> Iterator[Use]:
    """Use the kernels or torch's operations for a while, in this process; kernels only where they can be.

    By themselves they are used by a recorded training step alone, which checks and times them first. What is recorded
    is replayed as it was, whatever is wished then.

    Autograd's backward follows its forward, wherever it is called.

    >>> with use(False):
    ...     takes(torch.ones(2, 2))
    False
    """
    _uses.append(Use(wish))
    try:
        yield _uses[-1]
    finally:
        _uses.pop()


def wanted() -> bool:
    """Whether kernels are wanted now."""
    return _uses[-1].wanted


def refused() -> bool:
    """Whether they have been turned off, by :func:`use`."""
    return len(_uses) > 1 and not wanted()


def takes(*tensors: Tensor) -> bool:
    """Whether kernels are wanted, and these tensors are such that they can be used.

    They must be plain tensors of floats on a GPU with Triton, or on the CPU under Triton's interpreter. Not while
    exporting, for a program that is exported shall run without this package; nor under ``torch.func`` or forward-mode
    differentiation, which want operations that know more derivatives. While compiling, kernels are used where they have
    been before.
    """
    device = tensors[0].device
    if not wanted() or not all(tensor.dtype in TYPES and tensor.device == device for tensor in tensors):
        return False
    if torch.compiler.is_compiling():
        return (
            _known.get(device.type, "it was not asked") is None and not getattr(torch.compiler, "is_exporting", bool)()
        )
    if torch._C._is_tracing() or forward_ad._current_level >= 0 or why_not(device) is not None:
        return False
    for tensor in tensors:
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.layout != torch.strided:
            return False
    _uses[-1].taken += 1
    return True


def why_not(device: torch.device) -> str | None:
    """Return why kernels cannot be used on a device; None where they can.

    >>> why_not(torch.device("meta"))
    'a META runs no kernels'
    """
    if device.type not in _known:
        _known[device.type] = _ask(device)
    return _known[device.type]


_known: dict[str, str | None] = {}


def _ask(device: torch.device) -> str | None:
    interpreted = device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" and not interpreted:
        return f"a {device.type.upper()} runs no kernels"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if interpreted:
        return None
    from triton.runtime import driver

    try:
        driver.active.get_current_target()  # builds what launches kernels, for which it needs a C compiler
    except Exception as error:
        return f"triton does not work here ({type(error).__name__}: {error})".splitlines()[0]
    return None
