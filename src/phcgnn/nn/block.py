"""Linear layer, norm, activation and dropout, block after block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from phcgnn.nn.activation import Activation
from phcgnn.nn.affine import Affine
from phcgnn.nn.dropout import ComponentDropout
from phcgnn.nn.eager import is_watched, plain_on_cpu
from phcgnn.nn.fused import Fused, apply_fused
from phcgnn.nn.linear import PHMLinear
from phcgnn.nn.norm import PHCNorm, normalise

__all__ = ["Block", "apply_blocks"]

Block = tuple[nn.Module, nn.Module, Activation, nn.Module | None]
"""A linear layer, a norm, an activation and, if there is one, a dropout."""


def apply_blocks(
    x: Tensor, blocks: Sequence[Block], mask: Tensor | None = None, skipped: Tensor | None = None
) -> Tensor:  # (rows, F_in) -> (rows, F_out)
    """Apply blocks one after the other and add what skips them; in training on the CPU as one operation, if they fit.

    Args:
        x: Rows.
        blocks: At least one.
        mask: The rows that the norms count.
        skipped: Added to the result.
    """
    if mask is None and _fit(x, blocks):
        return apply_fused(x, [_prepare(x, block) for block in blocks], skipped)
    for linear, norm, activation, dropout in blocks:
        x = activation(normalise(norm, linear(x), mask))
        x = x if dropout is None else dropout(x)
    return x if skipped is None else x + skipped


def _fit(x: Tensor, blocks: Sequence[Block]) -> bool:
    if not plain_on_cpu(x) or x.dim() != 2 or len(x) < 2 or x.dtype not in (torch.float32, torch.float64):
        return False
    width = x.shape[1]
    for linear, norm, activation, dropout in blocks:
        if not isinstance(linear, PHMLinear | Affine) or not isinstance(norm, PHCNorm):
            return False
        if type(linear) not in (PHMLinear, Affine) or type(norm) is not PHCNorm or type(activation) is not nn.ReLU:
            return False
        if dropout is not None and type(dropout) is not ComponentDropout:
            return False
        if (linear.in_features, linear.out_features) != (width, norm.num_features):
            return False
        if not norm.training or getattr(linear, "relu", False) or is_watched(linear, norm, activation, dropout):
            return False
        parameters = [linear.weight, norm.weight, norm.bias]
        if any(p.dtype != x.dtype for p in parameters) or not plain_on_cpu(*parameters):
            return False
        width = norm.num_features
    return True


def _prepare(x: Tensor, block: Block) -> Fused:
    linear, norm, _, dropout = cast("tuple[PHMLinear | Affine, PHCNorm, nn.ReLU, ComponentDropout | None]", block)
    weight = linear.current_weight() if isinstance(linear, PHMLinear) else linear.weight
    keep = None
    if dropout is not None and dropout.p and dropout.training:
        keep = dropout.draw(x.new_empty(()).expand(len(x), linear.out_features))
    return Fused(weight, linear.bias, norm, keep)
