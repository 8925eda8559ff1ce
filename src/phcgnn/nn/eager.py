"""Whether a layer may take a path of its own, for plain tensors on the CPU alone or around modules nobody watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

__all__ = ["is_watched", "plain_on_cpu"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def plain_on_cpu(*tensors: Tensor) -> bool:
    """Whether these are plain tensors on the CPU and nothing watches or transforms what is done with them.

    Not while compiling, exporting or tracing, under autocast, a dispatch mode (``FakeTensorMode``, a counter of
    operations), a transform of ``torch.func``, several gradients at once (``is_grads_batched``) or forward-mode
    differentiation: there torch's own operations are used.

    >>> plain_on_cpu(torch.ones(2)), plain_on_cpu(torch.ones(2, device="meta"))
    (True, False)
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing() or _dispatch_modes() or _function_modes():
        return False
    if torch.is_autocast_enabled("cpu") or forward_ad._current_level >= 0:
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    for tensor in tensors:
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return False
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or not torch._C._has_storage(tensor):
            return False
    return True


def is_watched(*modules: object) -> bool:
    """Whether a hook waits for one of these modules to be called, or for any module at all.

    So does a ``forward`` that was put in the place of a module's own.

    >>> layer = nn.Linear(2, 2)
    >>> handle = layer.register_forward_hook(print)
    >>> is_watched(layer), is_watched(nn.ReLU())
    (True, False)
    """
    if not torch.compiler.is_compiling() and nn.modules.module._has_any_global_hook():
        return True
    if any("forward" in getattr(module, "__dict__", ()) for module in modules):
        return True
    return any(getattr(module, hooks, None) for module in modules for hooks in _HOOKS)


def _none() -> int:
    return 0


def _find(name: str) -> Callable[[], Any]:
    return getattr(torch._C, name, _none)


_dispatch_modes, _function_modes = _find("_len_torch_dispatch_stack"), _find("_len_torch_function_stack")
