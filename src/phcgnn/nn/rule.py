"""The multiplication rule: the owner of the contribution matrices C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from phcgnn.algebra import Algebra
from phcgnn.errors import require_bool, require_positive
from phcgnn.nn.precision import at_least_float32, keep_wide
from phcgnn.nn.start import start_rule

__all__ = ["MultiplicationRule"]


class MultiplicationRule(nn.Module):
    r"""The matrices :math:`\mathbf{C}_1, \dots, \mathbf{C}_{terms}`, learned or frozen.

    Given to many layers it is one parameter. The matrices stay in float32 when a model is moved to bfloat16 or float16:
    they are few, and every entry of the weight depends on them.

    Args:
        algebra (Algebra or str): What the rule starts from, and returns to on :meth:`reset_parameters`.
        learn (bool): Whether the matrices are a parameter; a frozen rule is a buffer (the paper's PHC-2-C, PHC-4-Q).

    >>> rule = MultiplicationRule("quaternion", learn=False)
    >>> rule.constants.shape, len(list(rule.parameters()))
    (torch.Size([4, 4, 4]), 0)
    >>> rule.algebra.nearest()[0].name
    'quaternion'
    """

    constants: Tensor

    def __init__(
        self,
        algebra: Algebra | str,
        learn: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        value = Algebra.named(algebra) if isinstance(algebra, str) else algebra
        if not isinstance(value, Algebra):
            raise TypeError(
                f"MultiplicationRule: `algebra` must be an Algebra or a name, got {type(algebra).__name__}; "
                "make one of matrices with Algebra(constants)."
            )
        super().__init__()
        self._allocate(value, value.n, value.terms, learn, device, dtype)

    @classmethod
    def from_start(
        cls,
        start: str | Algebra,
        n: int,
        terms: int | None = None,
        learn: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Return a rule that starts, and restarts, from a named start: ``uniform`` draws new numbers at each reset.

        Args:
            start (str or Algebra): A name in :data:`phcgnn.nn.start.RULE_STARTS`, an algebra's name, or an algebra.
            n (int): Dimension.
            terms (int, optional): Number of matrices. (default: ``n``)
            learn (bool): Whether the matrices are a parameter.
            device (torch.device or str, optional): Where they live.
            dtype (torch.dtype, optional): Their type, float32 or wider.
        """
        terms = n if terms is None else terms
        require_positive(cls.__name__, n=n, terms=terms)
        rule = cls.__new__(cls)
        nn.Module.__init__(rule)
        rule._allocate(start, n, terms, learn, device, dtype)
        return rule

    def _allocate(
        self,
        start: str | Algebra,
        n: int,
        terms: int,
        learn: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        require_bool("MultiplicationRule", learn=learn)
        self.n, self.terms, self.start = n, terms, start
        constants = torch.empty(terms, n, n, device=device, dtype=at_least_float32(dtype))
        if learn:
            self.constants = nn.Parameter(constants)
        else:
            self.register_buffer("constants", constants)
        self.reset_parameters()

    @property
    def learn(self) -> bool:
        """Whether the matrices are a parameter."""
        return "constants" in self._parameters

    @property
    def algebra(self) -> Algebra:
        """The rule as it is now, as a value."""
        return Algebra(self.constants, name="rule")

    def reset_parameters(self) -> None:
        """Go back to the start."""
        algebra = start_rule(self.start, self.n, self.terms)
        with torch.no_grad():
            self.constants.copy_(algebra.constants)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return super()._apply(keep_wide(fn), recurse)

    def extra_repr(self) -> str:
        """Describe the rule for ``repr``."""
        start = self.start.name if isinstance(self.start, Algebra) else self.start
        terms = "" if self.terms == self.n else f"terms={self.terms}, "
        return f"n={self.n}, {terms}start={start}, learn={self.learn}"
