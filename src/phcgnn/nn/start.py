r"""How rules and weights start.

A *rule start* is a function of ``(n, terms)`` that returns an :class:`~phcgnn.algebra.Algebra`; a *weight start*
writes :math:`\mathbf{W}` of shape ``(terms, out/n, in/n)`` in place, given the constants that it will be folded with.
Both draw from torch's own generator only.

What variance the *folded* weight :math:`\mathbf{U}` starts with, averaged over its entries, as a multiple of the Glorot
variance :math:`2 / (F_{in} + F_{out})` (of the He variance :math:`2 / F_{in}` for the He starts), with ``terms`` = n:

================================  ==============================================  ===========
weight start                      real, complex, quaternion, cyclic, any algebra  ``uniform``
                                  whose products are single basis elements
================================  ==============================================  ===========
``phm``, ``phm-he``               1                                               n / 3
``glorot``, ``he``                n                                               n² / 3
``folded-glorot``, ``folded-he``  1                                               1
================================  ==============================================  ===========
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from phcgnn.algebra import ALGEBRAS, Algebra
from phcgnn.registry import Registry, unknown

__all__ = ["RULE_STARTS", "WEIGHT_STARTS", "RuleStart", "WeightStart", "start_rule"]

RuleStart = Callable[[int, int], Algebra]
WeightStart = Callable[[Tensor, Tensor], None]

RULE_STARTS: Registry[RuleStart] = Registry("rule start")
WEIGHT_STARTS: Registry[WeightStart] = Registry("weight start")


def start_rule(start: str | Algebra, n: int, terms: int) -> Algebra:
    """Return the algebra that a rule starts from: a name in :data:`RULE_STARTS`, an algebra's name, or an algebra."""
    if isinstance(start, Algebra):
        algebra = start
    elif isinstance(start, str) and start not in RULE_STARTS and (start in ALGEBRAS or ":" in start):
        algebra = Algebra.named(start)
    elif isinstance(start, str) and start not in RULE_STARTS:
        raise ValueError(unknown("rule start", start, [*RULE_STARTS, *ALGEBRAS]))
    else:
        return RULE_STARTS[start](n, terms)
    if (algebra.n, algebra.terms) != (n, terms):
        raise ValueError(
            f"rule start {algebra!r} has n={algebra.n} and terms={algebra.terms}, "
            f"the layer has n={n} and terms={terms}; make them agree or use rule_start='auto'."
        )
    return algebra


@RULE_STARTS.register("auto")
def _auto(n: int, terms: int) -> Algebra:
    """Real, complex, quaternion for n = 1, 2, 4, else Eq. (6), as the paper; uniform where terms is not n."""
    if terms != n:
        return Algebra.uniform(n, terms)
    return Algebra.cayley_dickson(n) if n in (1, 2, 4) else Algebra.cyclic(n)


@RULE_STARTS.register("cyclic")
def _cyclic(n: int, terms: int) -> Algebra:
    """Eq. (6) for every n."""
    if terms != n:
        raise ValueError(f"rule start 'cyclic' has n matrices, got n={n} and terms={terms}; use rule_start='uniform'.")
    return Algebra.cyclic(n)


@RULE_STARTS.register("uniform")
def _uniform(n: int, terms: int) -> Algebra:
    """Eq. (7), the paper's dagger: new numbers at every call."""
    return Algebra.uniform(n, terms)


def _polar(weight: Tensor, fan: int) -> None:
    r"""Appendix, Algorithm 1 generalised: polar coordinates with a chi-distributed magnitude.

    An element has magnitude :math:`\sigma\chi_t` (t = terms degrees of freedom), phase :math:`\theta \sim U(-\pi, \pi)`
    and a random unit imaginary direction u; its components are :math:`\cos\theta` times the magnitude and
    :math:`u \sin\theta` times it. Without an imaginary part (t = 1) the phase is 0 or π: the normal distribution.
    """
    terms, *shape = weight.shape
    dtype, device = torch.promote_types(weight.dtype, torch.float32), weight.device
    sigma = math.sqrt(2 / (terms * fan))
    if terms == 1:
        weight.copy_(torch.randn(1, *shape, dtype=dtype, device=device) * sigma)
        return
    magnitude = torch.linalg.vector_norm(torch.randn(terms, *shape, dtype=dtype, device=device), dim=0) * sigma
    phase = (torch.rand(*shape, dtype=dtype, device=device) * 2 - 1) * math.pi
    direction = torch.randn(terms - 1, *shape, dtype=dtype, device=device)
    direction = direction / torch.linalg.vector_norm(direction, dim=0).clamp_min(torch.finfo(direction.dtype).tiny)
    weight[0] = magnitude * phase.cos()
    weight[1:] = magnitude * phase.sin() * direction


@WEIGHT_STARTS.register("phm")
def _phm(weight: Tensor, constants: Tensor) -> None:
    """The paper's start, sigma = sqrt(2 / (n (n_in + n_out))) with the widths of one component."""
    _polar(weight, fan=weight.shape[1] + weight.shape[2])


@WEIGHT_STARTS.register("phm-he")
def _phm_he(weight: Tensor, constants: Tensor) -> None:
    """Its He variant, sigma = sqrt(2 / (n n_in))."""
    _polar(weight, fan=weight.shape[2])


@WEIGHT_STARTS.register("glorot")
def _glorot(weight: Tensor, constants: Tensor) -> None:
    """Glorot for each matrix W_i by itself, uniform."""
    _uniform_with_variance(weight, 2 / (weight.shape[1] + weight.shape[2]))


@WEIGHT_STARTS.register("he")
def _he(weight: Tensor, constants: Tensor) -> None:
    """He for each matrix W_i by itself, uniform."""
    _uniform_with_variance(weight, 2 / weight.shape[2])


@WEIGHT_STARTS.register("folded-glorot")
def _folded_glorot(weight: Tensor, constants: Tensor) -> None:
    """The folded weight has the Glorot variance 2 / (in + out) on average over its entries, whatever the rule."""
    n = constants.shape[1]
    _uniform_with_variance(weight, 2 / (n * (weight.shape[1] + weight.shape[2])) / _gain(constants))


@WEIGHT_STARTS.register("folded-he")
def _folded_he(weight: Tensor, constants: Tensor) -> None:
    """The folded weight has the He variance 2 / in on average over its entries, whatever the rule."""
    _uniform_with_variance(weight, 2 / (constants.shape[1] * weight.shape[2]) / _gain(constants))


def _uniform_with_variance(weight: Tensor, variance: float) -> None:
    bound = math.sqrt(3 * variance)
    weight.uniform_(-bound, bound)


def _gain(constants: Tensor) -> float:
    """Variance of an entry of U over that of an entry of W, averaged over the entries of U."""
    if constants.is_meta:  # nothing is written there either
        return 1.0
    gain = constants.double().square().sum().item() / constants.shape[1] ** 2
    if gain == 0:
        raise ValueError("a folded weight start needs a rule that is not zero everywhere.")
    return gain
