"""From hypercomplex numbers to real ones."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from phcgnn.errors import ShapeError, require_divisible
from phcgnn.functional import split_components
from phcgnn.nn.affine import Affine

__all__ = ["RealKind", "RealTransformer"]

RealKind = Literal["linear", "sum", "mean", "norm"]


class RealTransformer(nn.Module):
    r"""Map n components to one real number a feature, Eq. (11).

    ``linear`` is :math:`\mathbf{A}\mathbf{h} + \mathbf{b}` with a full matrix :math:`nm \to m`; ``sum``, ``mean`` and
    ``norm`` (Euclidean) reduce over the components and learn nothing.

    Args:
        features (int): Input width n*m; the output width is m.
        n (int): Number of components.
        kind (str): ``linear``, ``sum``, ``mean`` or ``norm``.

    Shapes:
        - **input:** :math:`(*, nm)`
        - **output:** :math:`(*, m)`

    >>> RealTransformer(32, n=4)(torch.randn(5, 32)).shape
    torch.Size([5, 8])
    """

    def __init__(
        self,
        features: int,
        n: int = 4,
        *,
        kind: RealKind = "linear",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_divisible("RealTransformer", n, features=features)
        if kind not in get_args(RealKind):
            raise ValueError(f"RealTransformer: `kind` must be one of {', '.join(get_args(RealKind))}, got {kind!r}.")
        super().__init__()
        self.features, self.n, self.kind = features, n, kind
        self.affine = Affine(features, features // n, device=device, dtype=dtype) if kind == "linear" else None

    def reset_parameters(self) -> None:
        """Start the linear map anew."""
        if self.affine is not None:
            self.affine.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:  # (*, n*m) -> (*, m)
        """Apply the map."""
        if x.dim() == 0 or x.shape[-1] != self.features:
            raise ShapeError("RealTransformer: the input", got=x.shape, expected=("*", self.features))
        if self.affine is not None:
            return self.affine(x)
        components = split_components(x, self.n)
        if self.kind == "norm":
            return torch.linalg.vector_norm(components, dim=-2)
        return components.sum(-2) if self.kind == "sum" else components.mean(-2)

    def extra_repr(self) -> str:
        """Describe the map for ``repr``."""
        return f"{self.features}, n={self.n}, kind={self.kind}"
