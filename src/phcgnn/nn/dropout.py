"""Dropout that knows of components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phcgnn.errors import require_positive, require_probability
from phcgnn.functional import join_components, split_components

__all__ = ["ComponentDropout", "DropoutKind"]

DropoutKind = Literal["unit", "element"]


class ComponentDropout(nn.Module):
    r"""Dropout of whole units: all n components of a unit are kept, or all are zeroed.

    The mask has shape :math:`(*, 1, k/n)` for ``unit``, :math:`(*, k)` for ``element`` (ordinary dropout); what is
    kept is multiplied by :math:`1/(1-p)`.

    Args:
        p (float): Probability of being zeroed.
        n (int): Number of components.
        kind (str): ``unit`` or ``element``.

    Shapes:
        - **input, output:** :math:`(*, k)`

    >>> import torch
    >>> dropped = ComponentDropout(0.5, n=2)(torch.ones(1, 6)).view(2, 3)
    >>> bool((dropped[0] == dropped[1]).all())
    True
    """

    def __init__(self, p: float, n: int = 4, *, kind: DropoutKind = "unit") -> None:
        require_probability("ComponentDropout", p=p)
        require_positive("ComponentDropout", n=n)
        if kind not in get_args(DropoutKind):
            raise ValueError(f"ComponentDropout: `kind` must be 'unit' or 'element', got {kind!r}.")
        super().__init__()
        self.p, self.n, self.kind = p, n, kind

    def forward(self, x: Tensor) -> Tensor:  # (*, k) -> (*, k)
        """Apply the dropout; the identity in eval mode."""
        if not self.training or self.p == 0:
            return x
        if self.kind == "element":
            return x * self._keep(x.shape, x) if _draws_bits(x) else F.dropout(x, self.p)
        units = split_components(x, self.n)
        return join_components(units * self.draw(x))

    def draw(self, x: Tensor) -> Tensor:  # (*, k) -> (*, 1 or n, k/n)
        """Draw what each unit of ``x`` is multiplied with: 0, or 1 / (1 - p)."""
        units = split_components(x, self.n)
        shape = units.shape if self.kind == "element" else (*units.shape[:-2], 1, units.shape[-1])
        return self._keep(shape, x) if _draws_bits(x) else F.dropout(units.new_ones(shape), self.p)

    def _keep(self, shape: Sequence[int], x: Tensor) -> Tensor:
        if self.p == 1:
            return x.new_zeros(shape)
        # of 31 random bits: several times as fast as a Bernoulli generator, and as near to p as float32 can say
        bits = torch.empty(shape, dtype=torch.int32, device=x.device).random_()
        kept = bits <= round((1 - self.p) * 2**31) - 1  # 2**31 itself is no int32
        return kept.to(x.dtype).mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        """Describe the dropout for ``repr``."""
        return f"p={self.p}, n={self.n}, kind={self.kind}"


def _draws_bits(x: Tensor) -> bool:
    """Whether random integers stand in for torch's dropout: on the CPU, but for what traces or transforms the draw."""
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(x)
