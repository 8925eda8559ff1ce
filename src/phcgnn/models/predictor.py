"""From an embedding to the targets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Unpack

from torch import Tensor, nn

from phcgnn.nn.activation import Activation, build_activation
from phcgnn.nn.block import apply_blocks
from phcgnn.nn.dropout import ComponentDropout, DropoutKind
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.norm import build_norm
from phcgnn.nn.real import RealTransformer

__all__ = ["Predictor"]


class Predictor(nn.Module):
    r"""``[PHM -> norm -> activation -> dropout]`` for each hidden width, then PHM to n T, then a linear map to T.

    Args:
        in_features (int): Width of the embedding.
        hidden (sequence of int): Hidden widths; may be empty.
        targets (int): Number of outputs T.
        n (int): Dimension of the rule.
        dropout (sequence of float): One a hidden width.
        dropout_kind (str): See :class:`~phcgnn.nn.ComponentDropout`.
        norm (str, optional): ``component``, ``whitening`` or None.
        activation (str or callable): Activation.
        **options: Whatever else :class:`~phcgnn.nn.PHMLinear` takes.

    Shapes:
        - **input:** :math:`(*, F)`
        - **mask, optional:** :math:`(*)`, boolean: the rows that the norms count
        - **output:** :math:`(*, T)`

    >>> import torch
    >>> Predictor(16, (8, 4), targets=3, n=4, dropout=(0.1, 0.0))(torch.randn(5, 16)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        targets: int,
        n: int = 4,
        *,
        dropout: Sequence[float],
        dropout_kind: DropoutKind = "unit",
        norm: str | None = "component",
        activation: str | Activation = "relu",
        **options: Unpack[PHMOptions],
    ) -> None:
        super().__init__()
        device, dtype = options.get("device"), options.get("dtype")
        widths = (in_features, *hidden)
        self.linears = nn.ModuleList(PHMLinear(a, b, n, **options) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(build_norm(norm, width, n, device=device, dtype=dtype) for width in hidden)
        self.activation = build_activation(activation)
        self.dropouts = nn.ModuleList(ComponentDropout(p, n, kind=dropout_kind) for p in dropout)
        self.last = PHMLinear(widths[-1], n * targets, n, **options)
        self.real = RealTransformer(n * targets, n, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Start everything anew."""
        for module in (*self.linears, *self.norms, self.activation, self.last, self.real):
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (*, F), (*) -> (*, T)
        """Predict."""
        blocks = [
            (linear, norm, self.activation, dropout)
            for linear, norm, dropout in zip(self.linears, self.norms, self.dropouts, strict=True)
        ]
        if blocks:
            x = apply_blocks(x, blocks, mask)
        return self.real(self.last(x))
