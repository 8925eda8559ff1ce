"""Any model's ``nn.Linear`` to ``PHMLinear``, and every ``PHMLinear`` back."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple, Unpack, get_args

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from phcgnn.errors import require_positive
from phcgnn.functional import nearest_kronecker_sum
from phcgnn.nn.affine import Affine
from phcgnn.nn.linear import PHMLinear, PHMOptions

__all__ = ["LayerReport", "fold", "to_phm"]

ProjectStart = Literal["fresh", "project"]

_log = logging.getLogger(__name__)
_HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
)


class LayerReport(NamedTuple):
    """What :func:`to_phm` did with one ``nn.Linear``."""

    name: str
    """Path of the layer in the model; empty if the model is the layer."""
    in_features: int
    out_features: int
    parameters_before: int
    parameters_after: int
    """Of this layer, a shared rule not counted."""
    relative_error: float | None
    """Relative Frobenius error of the projected weight; None if the layer starts afresh or was skipped."""
    skipped: str
    """Why the layer was left as it is; empty if it was converted."""


def to_phm(
    module: nn.Module,
    n: int = 4,
    *,
    filter: Callable[[str, nn.Linear], bool] | None = None,
    start: ProjectStart = "fresh",
    inplace: bool = False,
    report: Callable[[LayerReport], object] | None = None,
    **options: Unpack[PHMOptions],
) -> nn.Module:
    r"""Replace the ``nn.Linear`` layers of any model by :class:`PHMLinear` layers of the same widths.

    Left as they are, and reported with the reason: layers whose widths ``n`` does not divide, subclasses of
    ``nn.Linear`` (attention reads their weights directly), layers whose weight another module uses too (tied
    embeddings), layers with hooks, which would be lost, and lazy layers that have not seen an input yet.

    Args:
        module (nn.Module): The model, or one ``nn.Linear``; left untouched unless ``inplace``.
        n (int): Dimension of the rule.
        filter (callable, optional): Given a layer's path and the layer, whether to convert it. (default: every one)
        start (str): ``fresh`` starts the weights anew; ``project`` takes the sum of Kronecker products that is nearest
            to the existing weight, so that a trained model is compressed. With the rule given (``rule``, or a
            ``rule_start`` other than ``auto``) or frozen, the projection keeps it and fits the weights alone.
        inplace (bool): Whether to change ``module`` itself, where it is not a single layer.
        report (callable, optional): Called with a :class:`LayerReport` for each ``nn.Linear``, e.g. ``rows.append``.
        **options: Whatever else :class:`PHMLinear` takes; ``bias``, ``device`` and ``dtype`` follow each layer.

    Returns:
        The converted model.

    >>> rows = []
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    >>> to_phm(model, n=2, report=rows.append)
    Sequential(
      (0): PHMLinear(
        in_features=8, out_features=16, n=2, bias=True
        (rule): MultiplicationRule(n=2, start=auto, learn=True)
      )
      (1): ReLU()
      (2): Linear(in_features=16, out_features=3, bias=True)
    )
    >>> rows[1].skipped
    'n=2 does not divide 16 -> 3'
    """
    require_positive("to_phm", n=n)
    if start not in get_args(ProjectStart):
        raise ValueError(f"to_phm: `start` must be 'fresh' or 'project', got {start!r}.")
    for taken in ("bias", "device", "dtype"):
        if taken in options:
            raise TypeError(f"to_phm: `{taken}` follows each replaced layer and cannot be given.")
    model = module if inplace else copy.deepcopy(module)
    uses = Counter(id(p) for m in model.modules() for p in m._parameters.values() if p is not None)
    keeps_rule = options.get("rule") is not None or options.get("rule_start", "auto") != "auto"
    keeps_rule = keeps_rule or not options.get("learn_rule", True)

    def convert(name: str, layer: nn.Module) -> nn.Module | None:
        if not isinstance(layer, nn.Linear):
            return None
        reason = _reason_to_skip(name, layer, n, uses, filter)
        phm, error = None, None
        if not reason:
            phm = _phm_like(layer, n, options)
            if start == "project":
                error = _project(name, layer, phm, keeps_rule)
        row = LayerReport(name, layer.in_features, layer.out_features, _size(layer), _size(phm or layer), error, reason)
        _log.info("to_phm: %s", row)
        if report is not None:
            report(row)
        return phm

    return _replace(model, convert)


def fold(module: nn.Module, *, inplace: bool = False) -> nn.Module:
    """Replace every :class:`PHMLinear` by the ``nn.Linear`` that computes the same, for deployment.

    A rule that a module holds for the layers within it goes with them; one that a module uses by itself stays. Mode,
    forward and backward hooks are carried over. A weight that a hook computes (``torch.nn.utils.prune``, the old
    ``weight_norm``) is refused, for it may be out of date. The model is left untouched unless ``inplace``.

    >>> fold(PHMLinear(8, 4, n=2))
    Linear(in_features=8, out_features=4, bias=True)
    """
    model = module if inplace else copy.deepcopy(module)
    held: list[tuple[nn.Module, str]] = []

    def convert(name: str, layer: nn.Module) -> nn.Module | None:
        return _linear_like(name, layer) if isinstance(layer, PHMLinear) else None

    for holder in list(model.modules()):
        served = {id(layer.rule) for layer in holder.modules() if isinstance(layer, PHMLinear)}
        rules = [name for name, child in holder._modules.items() if id(child) in served]
        held.extend((holder, name) for name in rules if not isinstance(holder, PHMLinear))
    folded = _replace(model, convert)
    for holder, name in held:
        holder._modules[name] = None
    return folded


def _linear_like(name: str, layer: PHMLinear) -> nn.Linear:
    if "weight" not in layer._parameters and not is_parametrized(layer, "weight"):
        raise ValueError(
            f"fold: the weight of layer '{name}' is computed by a hook; make it a parameter first, "
            "e.g. by torch.nn.utils.prune.remove(layer, 'weight')."
        )
    linear = layer.to_linear()
    for hooks in _HOOKS:
        setattr(linear, hooks, getattr(layer, hooks))
    return linear


def _replace(model: nn.Module, convert: Callable[[str, nn.Module], nn.Module | None]) -> nn.Module:
    """Put ``convert(path, module)`` where it is not None; a module in two places is converted once, into one."""
    done: dict[int, nn.Module] = {}

    def visit(module: nn.Module, path: str) -> nn.Module:
        if id(module) in done:
            return done[id(module)]
        done[id(module)] = module
        new = convert(path, module)
        if new is not None:
            done[id(module)] = new
            return new
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = visit(child, f"{path}.{name}" if path else name)
        _leave_fast_path(module)
        return module

    return visit(model, "")


def _leave_fast_path(module: nn.Module) -> None:
    """Keep torch's fused encoder layer from reading the weights of layers that are no ``nn.Linear``."""
    if isinstance(module, nn.TransformerEncoderLayer) and any(isinstance(m, PHMLinear) for m in module.children()):
        module.activation_relu_or_gelu = 0


def _reason_to_skip(
    name: str,
    layer: nn.Linear,
    n: int,
    uses: Counter[int],
    filter: Callable[[str, nn.Linear], bool] | None,
) -> str:
    if filter is not None and not filter(name, layer):
        return "filtered out"
    if is_lazy(layer.weight):
        return "it is lazy: its widths are unknown before the first forward"
    if type(layer) not in (nn.Linear, Affine):
        return f"a subclass of nn.Linear: {type(layer).__name__}"
    if isinstance(layer, Affine) and layer.relu:
        return "it takes the positive part of its output"
    if layer.in_features % n or layer.out_features % n:
        return f"n={n} does not divide {layer.in_features} -> {layer.out_features}"
    if any(uses[id(parameter)] > 1 for parameter in layer.parameters()):
        return "its weight or bias is shared with another module"
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
        return "it has hooks"
    return ""


def _phm_like(layer: nn.Linear, n: int, options: PHMOptions) -> PHMLinear:
    own: PHMOptions = {
        **options,
        "bias": layer.bias is not None,
        "device": layer.weight.device,
        "dtype": layer.weight.dtype,
    }
    phm = PHMLinear(layer.in_features, layer.out_features, n, **own)
    with torch.no_grad():
        if phm.bias is not None:
            phm.bias.copy_(layer.bias)
    phm.weight.requires_grad_(layer.weight.requires_grad)
    if phm.owns_rule and not layer.weight.requires_grad:
        phm.rule.requires_grad_(False)
    if phm.bias is not None:
        phm.bias.requires_grad_(layer.bias.requires_grad)
    return phm.train(layer.training)


def _project(name: str, layer: nn.Linear, phm: PHMLinear, keeps_rule: bool) -> float:
    fault = "is on the meta device" if layer.weight.is_meta else ""
    if not fault and not layer.weight.isfinite().all():
        fault = "is not finite"
    if fault:
        raise ValueError(
            f"to_phm: the weight of layer '{name}' {fault}, so nothing is nearest to it; "
            "use start='fresh', or leave the layer out by `filter`."
        )
    kept = phm.rule.constants if keeps_rule else None
    constants, weight, error = nearest_kronecker_sum(layer.weight, phm.n, phm.terms, kept)
    with torch.no_grad():
        phm.weight.copy_(weight)
        if not keeps_rule:
            phm.rule.constants.copy_(constants)
    return error


def _size(layer: nn.Module) -> int:
    parameters = [p for name, p in layer.named_parameters() if not name.startswith("rule.") or _owns_rule(layer)]
    return sum(p.numel() for p in parameters if not is_lazy(p))


def _owns_rule(layer: nn.Module) -> bool:
    return isinstance(layer, PHMLinear) and layer.owns_rule
