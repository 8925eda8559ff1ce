"""Two PHM layers with a norm and an activation between."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from phcgnn.nn.activation import Activation, build_activation
from phcgnn.nn.block import Block, apply_blocks
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.norm import build_norm

__all__ = ["PHMLP"]


class PHMLP(nn.Module):
    r"""``PHM -> norm -> activation -> PHM``.

    Args:
        in_features (int): Input width.
        out_features (int): Output width.
        n (int): Dimension of the rule; divides all three widths.
        hidden_features (int, optional): Width between the layers. (default: ``out_features``)
        norm (str or nn.Module, optional): ``component``, ``whitening``, a module, or None.
        activation (str or callable, optional): A name in :data:`phcgnn.nn.activation.ACTIVATIONS`, a callable, or None.
        **options: Whatever else :class:`PHMLinear` takes; a :class:`MultiplicationRule` serves both layers.

    Shapes:
        - **input:** :math:`(*, F_{in})`
        - **mask, optional:** :math:`(*)`, boolean: the rows that the norm counts
        - **output:** :math:`(*, F_{out})`

    >>> import torch
    >>> PHMLP(32, 64, n=4)(torch.randn(5, 32)).shape
    torch.Size([5, 64])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n: int = 4,
        *,
        hidden_features: int | None = None,
        norm: str | nn.Module | None = "component",
        activation: str | Activation | None = "relu",
        **options: Unpack[PHMOptions],
    ) -> None:
        super().__init__()
        hidden_features = out_features if hidden_features is None else hidden_features
        self.linear1 = PHMLinear(in_features, hidden_features, n, **options)
        self.norm = build_norm(norm, hidden_features, n, device=options.get("device"), dtype=options.get("dtype"))
        self.activation = build_activation(activation)
        self.linear2 = PHMLinear(hidden_features, out_features, n, **options)

    def reset_parameters(self) -> None:
        """Start both layers and the norm anew."""
        for module in (self.linear1, self.norm, self.activation, self.linear2):
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (*, F_in), (*) -> (*, F_out)
        """Apply the network."""
        return self.linear2(apply_blocks(x, [self.hidden], mask))

    @property
    def hidden(self) -> Block:
        """All but the last layer."""
        return self.linear1, self.norm, self.activation, None
