"""The PHM layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypedDict

import torch
from torch import Tensor, nn

from phcgnn.algebra import Algebra
from phcgnn.errors import ShapeError, require_bool, require_divisible, require_positive
from phcgnn.functional import kronecker_sum
from phcgnn.nn.affine import affine
from phcgnn.nn.cache import DerivedTensor
from phcgnn.nn.rule import MultiplicationRule
from phcgnn.nn.start import WEIGHT_STARTS, WeightStart

__all__ = ["PHMLinear", "PHMOptions"]


class PHMOptions(TypedDict, total=False):
    """The keyword arguments of :class:`PHMLinear`, for modules that build such layers and pass them on."""

    bias: bool
    rule: MultiplicationRule | Algebra | str | None
    learn_rule: bool
    rule_start: str | Algebra
    weight_start: str | WeightStart
    terms: int | None
    device: torch.device | str | None
    dtype: torch.dtype | None


class PHMLinear(nn.Module):
    r"""Affine map whose weight is a learned sum of Kronecker products; takes the place of an ``nn.Linear``.

    .. math:: \mathbf{y} = \mathbf{U}\mathbf{x} + \mathbf{b}, \qquad
              \mathbf{U} = \sum_{i=1}^{terms} \mathbf{C}_i \otimes \mathbf{W}_i

    :math:`\mathbf{C}_i` (``rule.constants[i]``, n x n) mixes components; :math:`\mathbf{W}_i` (``weight[i]``,
    out/n x in/n) mixes channels. Features are component-major: the first ``in/n`` entries are component 1.
    Parameters: ``terms * n**2 + terms * in/n * out/n`` (+ ``out``), which is ``n**3 + in*out/n`` for ``terms = n``.

    In training :math:`\mathbf{U}` is built once a step, for ``terms * in * out`` multiplications. In eval mode, where
    autograd does not need the parameters (``torch.no_grad``, ``torch.inference_mode``, or frozen ones), it is built
    once and kept until a parameter changes; :meth:`to_linear` gives the plain layer for good.

    Args:
        in_features (int): Input width; must be a multiple of ``n``.
        out_features (int): Output width; must be a multiple of ``n``.
        n (int): Dimension of the rule (the paper's m in Eq. 4, its n everywhere else).
        bias (bool): Whether to add :math:`\mathbf{b}`.
        rule (MultiplicationRule or Algebra or str, optional): The rule. A :class:`MultiplicationRule` is used as it is,
            shared with whoever else holds it, and never reset by this layer; an algebra or its name is what this
            layer's own rule starts from. (default: an own rule from ``rule_start``)
        learn_rule (bool): Whether the layer's own rule is a parameter.
        rule_start (str or Algebra): ``auto`` (real, complex, quaternion for n = 1, 2, 4, else cyclic, as the paper),
            ``cyclic`` (Eq. 6), ``uniform`` (Eq. 7), or an algebra.
        weight_start (str or callable): ``phm``, ``phm-he``, ``glorot``, ``he``, ``folded-glorot``, ``folded-he``; what
            each means for the folded weight stands in :mod:`phcgnn.nn.start`. A callable writes its first argument,
            the weight, given the constants.
        terms (int, optional): Number of Kronecker products (the paper's n in Eq. 4). (default: ``n``)

    Shapes:
        - **input:** :math:`(*, F_{in})`
        - **output:** :math:`(*, F_{out})`

    >>> layer = PHMLinear(32, 64, n=4)
    >>> layer(torch.zeros(5, 32)).shape
    torch.Size([5, 64])
    >>> layer.rule.constants.shape, layer.weight.shape, layer.bias.shape
    (torch.Size([4, 4, 4]), torch.Size([4, 16, 8]), torch.Size([64]))
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n: int = 4,
        *,
        bias: bool = True,
        rule: MultiplicationRule | Algebra | str | None = None,
        learn_rule: bool = True,
        rule_start: str | Algebra = "auto",
        weight_start: str | WeightStart = "phm",
        terms: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_divisible("PHMLinear", n, in_features=in_features, out_features=out_features)
        if terms is None:
            terms = rule.terms if isinstance(rule, MultiplicationRule | Algebra) else n
        require_positive("PHMLinear", terms=terms)
        require_bool("PHMLinear", bias=bias, learn_rule=learn_rule)
        if rule is not None and rule_start != "auto":
            raise ValueError("PHMLinear: `rule` and `rule_start` both say where the rule starts; give one of them.")
        super().__init__()
        self.in_features, self.out_features, self.n, self.terms = in_features, out_features, n, terms
        self.owns_rule = not isinstance(rule, MultiplicationRule)
        if isinstance(rule, MultiplicationRule):
            if not learn_rule and rule.learn:
                raise ValueError(
                    "PHMLinear: `learn_rule=False` cannot freeze a rule that is given; "
                    "give MultiplicationRule(algebra, learn=False)."
                )
            self.rule = rule
        elif rule is None or isinstance(rule, Algebra | str):
            start = rule_start if rule is None else rule
            self.rule = MultiplicationRule.from_start(start, n, terms, learn_rule, device=device, dtype=dtype)
        else:
            raise TypeError(
                f"PHMLinear: `rule` must be a MultiplicationRule, an Algebra or a name, got {type(rule).__name__}."
            )
        if (self.rule.n, self.rule.terms) != (n, terms):
            raise ValueError(
                f"PHMLinear: the rule has n={self.rule.n} and terms={self.rule.terms}, the layer n={n} and "
                f"terms={terms}; pass n={self.rule.n}, terms={self.rule.terms} or another rule."
            )
        self.weight_start = weight_start
        if not isinstance(weight_start, str) and not callable(weight_start):
            raise TypeError(
                f"PHMLinear: `weight_start` must be a name ({', '.join(WEIGHT_STARTS)}) or a callable, "
                f"got {weight_start!r}."
            )
        self._fill = WEIGHT_STARTS[weight_start] if isinstance(weight_start, str) else weight_start
        self.weight = nn.Parameter(torch.empty(terms, out_features // n, in_features // n, device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self._dense = DerivedTensor()
        self._built: Tensor | None = None
        """The dense weight, where :func:`~phcgnn.nn.batched_weights` has built it together with others."""
        self._reset_own_parameters()

    def reset_parameters(self) -> None:
        """Start anew: the weight, the bias (zero), and the rule if it is this layer's own."""
        if self.owns_rule:
            self.rule.reset_parameters()
        self._reset_own_parameters()

    def _reset_own_parameters(self) -> None:
        with torch.no_grad():
            self._fill(self.weight, self.rule.constants)
            if self.bias is not None:
                self.bias.zero_()

    def dense_weight(self) -> Tensor:
        r"""Build :math:`\mathbf{U}`, shape ``(out, in)``: a new tensor that autograd follows to C and W."""
        return kronecker_sum(self.rule.constants, self.weight)

    def to_linear(self) -> nn.Linear:
        """Return the plain layer that computes the same, with parameters of its own."""
        has_bias = self.bias is not None
        linear = nn.utils.skip_init(
            nn.Linear,
            self.in_features,
            self.out_features,
            bias=has_bias,
            device=self.weight.device,
            dtype=self.weight.dtype,
        )
        with torch.no_grad():
            linear.weight.copy_(self.dense_weight())
            if self.bias is not None:
                linear.bias.copy_(self.bias)
                linear.bias.requires_grad_(self.bias.requires_grad)
        linear.weight.requires_grad_(self.weight.requires_grad)
        return linear.train(self.training)

    def forward(self, x: Tensor) -> Tensor:  # (*, F_in) -> (*, F_out)
        """Apply the layer."""
        if x.dim() == 0 or x.size(-1) != self.in_features:  # a nested tensor has a last size, but no shape
            raise ShapeError(
                "PHMLinear: the input",
                got=x.shape,
                expected=("*", self.in_features),
                hint=f"the layer was made with in_features={self.in_features}",
            )
        return affine(x, self.current_weight(), self.bias)

    def current_weight(self) -> Tensor:  # (F_out, F_in)
        """Return the dense weight as :meth:`forward` uses it: kept outside training, built together, or new."""
        constants, weight = self.rule.constants, self.weight
        if self._built is not None:
            return self._built
        if self.training or self._is_sharded() or not self._dense.applies(weight, constants):
            return kronecker_sum(constants, weight)
        return self._dense.get(lambda w, c: kronecker_sum(c, w), weight, constants)

    def _is_sharded(self) -> bool:
        """Whether FSDP gathers the parameters anew for each forward, unseen by their version counters."""
        return getattr(self, "_is_fsdp_managed_module", False)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; the kept weight is forgotten either way."""
        self._dense.clear()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._dense.clear()
        return super()._apply(fn, recurse)

    def extra_repr(self) -> str:
        """Describe the layer for ``repr``."""
        terms = "" if self.terms == self.n else f", terms={self.terms}"
        shared = "" if self.owns_rule else ", shared rule"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, n={self.n}{terms}, "
            f"bias={self.bias is not None}{shared}"
        )
