"""Norm, activation and dropout, one after the other."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from phcgnn.nn.activation import Activation
from phcgnn.nn.dropout import ComponentDropout
from phcgnn.nn.eager import is_watched
from phcgnn.nn.norm import PHCNorm, normalise

__all__ = ["activate"]


def activate(
    x: Tensor,  # (rows, k)
    norm: nn.Module,
    activation: Activation,
    dropout: nn.Module | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return ``dropout(activation(norm(x)))``; in training on the CPU as one operation, where the parts are the usual.

    Args:
        x: Rows.
        norm: The norm.
        activation: The activation.
        dropout: The dropout, if there is one.
        mask: The rows that the norm counts.
    """
    if mask is None and _fits(x, norm, activation, dropout):
        keep = None
        if dropout is not None and dropout.p and dropout.training:
            keep = cast(ComponentDropout, dropout).draw(x)
        return cast(PHCNorm, norm).activate(x, relu=True, keep=keep)
    y = activation(normalise(norm, x, mask))
    return y if dropout is None else dropout(y)


def _fits(x: Tensor, norm: nn.Module, activation: Activation, dropout: nn.Module | None) -> bool:
    if type(norm) is not PHCNorm or type(activation) is not nn.ReLU or not norm.training or norm.momentum is None:
        return False
    if dropout is not None and type(dropout) is not ComponentDropout:
        return False
    if x.dim() != 2 or x.shape[0] < 2 or x.shape[1] != norm.num_features or not norm.fits(x):
        return False
    return not is_watched(norm, activation, dropout)
