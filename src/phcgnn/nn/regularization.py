"""The two penalties of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from phcgnn.nn.linear import PHMLinear
from phcgnn.nn.rule import MultiplicationRule

__all__ = ["rule_penalty", "weight_penalty"]


def weight_penalty(model: nn.Module, p: float = 2) -> Tensor:
    r"""Eq. (9), summed over the PHM layers of a model.

    .. math:: L_p(\mathbf{W}) = \frac{n^2}{kd} \sum_{a,b} \Big(\sum_i |(\mathbf{W}_i)_{ab}|^p\Big)^{1/p}

    the mean over the entries of the :math:`l_p` norm of an entry's components. Its gradient at zero is zero.

    >>> layer = PHMLinear(4, 4, n=2)
    >>> _ = torch.nn.init.ones_(layer.weight)
    >>> round(weight_penalty(layer).item(), 4)
    1.4142
    """
    if not p > 0:
        raise ValueError(f"weight_penalty: `p` must be positive, got {p}.")
    layers = [module for module in model.modules() if isinstance(module, PHMLinear)]
    weights = [layer.weight for layer in layers]
    return _sum(model, weights, lambda stacked: _length(stacked, p).mean((1, 2)))


def rule_penalty(model: nn.Module) -> Tensor:
    r"""Eq. (10), summed over the rules of a model; a shared rule counts once.

    .. math:: L(\mathcal{C}) = \frac{1}{n^3} \sum_i \sum_{a,b} |(\mathbf{C}_i)_{ab}|

    >>> rule_penalty(PHMLinear(4, 4, n=2)).item()
    0.5
    """
    rules = [module for module in model.modules() if isinstance(module, MultiplicationRule)]
    return _sum(model, [rule.constants for rule in rules], lambda stacked: stacked.abs().mean((1, 2, 3)))


def _length(stacked: Tensor, p: float) -> Tensor:  # (S, terms, a, b) -> (S, a, b)
    if p != 2 or stacked.dtype == torch.float16:  # whose least number is not small
        return torch.linalg.vector_norm(stacked, ord=p, dim=1)
    # on a CPU ten times as fast as torch's norm; what is clamped has no gradient
    return stacked.square().sum(1).clamp_min(torch.finfo(stacked.dtype).tiny).sqrt()


def _sum(model: nn.Module, tensors: Iterable[Tensor], penalty: Callable[[Tensor], Tensor]) -> Tensor:
    """Sum the penalties of tensors; those of one shape are stacked, for one by one most of the time is overhead."""
    by_kind: dict[object, list[Tensor]] = {}
    for tensor in tensors:
        by_kind.setdefault((tensor.shape, tensor.dtype, tensor.device), []).append(tensor)
    if by_kind:
        return torch.stack([penalty(torch.stack(alike)).sum() for alike in by_kind.values()]).sum()
    reference = next(model.parameters(), None)
    return torch.zeros(()) if reference is None else reference.new_zeros(())
