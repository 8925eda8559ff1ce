"""A trained network in the form that predicts fastest."""

from __future__ import annotations

import copy
from collections import Counter

import torch
from torch import nn

from phcgnn.models.phc_gnn import PHCGNN
from phcgnn.nn import fold
from phcgnn.nn.activation import ACTIVATIONS
from phcgnn.nn.affine import Affine
from phcgnn.nn.aggregation import PNAAggregation, SetAggregation, SoftmaxAggregation
from phcgnn.nn.eager import is_watched
from phcgnn.nn.mlp import PHMLP
from phcgnn.nn.norm import PHCNorm, WhiteningNorm

__all__ = ["compact"]

KNOWN_SETS = (SoftmaxAggregation, PNAAggregation)


def compact(model: PHCGNN) -> PHCGNN:
    r"""Return a copy of a network for prediction alone: the same function, in fewer and faster operations.

    Every PHM layer is folded; a component norm, which in eval mode is affine, goes into the layer in front of it, and
    the ReLU behind it is taken on the way:

    .. math:: \max\big(0, \gamma \odot (\mathbf{U}\mathbf{x} + \mathbf{b} - \boldsymbol\mu) / \sigma
              + \boldsymbol\beta\big) = \max(0, \mathbf{U}'\mathbf{x} + \mathbf{b}')

    On the CPU it fills batches up, by nodes without neighbours that are in no graph, to one of few sizes, for which
    oneDNN has the products ready. The copy stays in eval mode and cannot be trained further; other norms and
    activations are left as they are, and so is a layer or a norm that stands in several places or that a hook watches.

    >>> model = PHCGNN(node_features=(28,), edge_features=(4,), n=2, width=8, layers=1, downstream=(4,)).eval()
    >>> x, edges, attributes = torch.tensor([[0], [5]]), torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1], [1]])
    >>> small, ptr = compact(model), torch.tensor([0, 2])
    >>> bool((small(x, edges, attributes, ptr) - model(x, edges, attributes, ptr)).abs().max() < 1e-6)
    True
    """
    small = fold(copy.deepcopy(model), inplace=True).eval()
    assert isinstance(small, PHCGNN)
    places = Counter(id(module) for _, module in small.named_modules(remove_duplicate=False))
    for layer, conv in enumerate(small.convs):
        transform = conv.transform
        if isinstance(transform, PHMLP):
            _merge(places, transform, "linear1", transform, "norm", transform, "activation")
            _merge(places, transform, "linear2", small.norms, str(layer), small.activations, str(layer))
        else:
            _merge(places, conv, "transform", small.norms, str(layer), small.activations, str(layer))
    head = small.predictor
    names = [str(i) for i in range(len(head.norms))]
    if all(_fits(places, head.linears[i], head.norms[i], head.activation) for i in range(len(names))):
        activation = head.activation
        for name in names:
            head.activation = activation
            _merge(places, head.linears, name, head.norms, name, head, "activation")
    for module in list(small.modules()):
        for name, child in module._modules.items():
            if type(child) is nn.Linear and not is_watched(child):
                module._modules[name] = Affine.from_linear(child)
    small.fills_up = _each_row_by_itself(small)
    return small.requires_grad_(False)


def _each_row_by_itself(model: PHCGNN) -> bool:
    """Whether nothing in a network in eval mode takes a statistic over nodes, or counts them."""
    norms = [*model.norms, *(conv.transform.norm for conv in model.convs if isinstance(conv.transform, PHMLP))]
    activations = [*model.activations, *(c.transform.activation for c in model.convs if isinstance(c.transform, PHMLP))]
    known = [nn.Identity, *(ACTIVATIONS[name] for name in ACTIVATIONS)]
    aggregations = [conv.aggr_module for conv in model.convs]
    return (
        all(type(norm) in (nn.Identity, PHCNorm, WhiteningNorm) for norm in norms)
        and all(type(activation) in known for activation in activations)
        # others that are not sets' are given the nodes that hear somebody alone
        and all(type(a) in KNOWN_SETS or not isinstance(a, SetAggregation) for a in aggregations)
    )


def _merge(
    places: Counter[int],
    of_linear: nn.Module,
    linear_name: str,
    of_norm: nn.Module,
    norm_name: str,
    of_activation: nn.Module,
    name: str,
) -> None:
    """Put one layer in the place of three; two identities keep the places of the others."""
    linear, norm = getattr(of_linear, linear_name), getattr(of_norm, norm_name)
    if not _fits(places, linear, norm, getattr(of_activation, name)):
        return
    scale = norm.weight.double() * torch.rsqrt(norm.running_var.double() + norm.eps)
    bias = 0.0 if linear.bias is None else linear.bias.double()
    weight = (scale[:, None] * linear.weight.double()).to(linear.weight)
    shift = ((bias - norm.running_mean.double()) * scale + norm.bias.double()).to(linear.weight)
    merged = Affine(linear.in_features, linear.out_features, device="meta")
    merged.weight, merged.bias = nn.Parameter(weight.detach()), nn.Parameter(shift.detach())
    merged.relu = True
    setattr(of_linear, linear_name, merged.eval())
    setattr(of_norm, norm_name, nn.Identity())
    setattr(of_activation, name, nn.Identity())


def _fits(places: Counter[int], linear: object, norm: object, activation: object) -> bool:
    plain = type(linear) is nn.Linear or (type(linear) is Affine and not linear.relu)
    usual = plain and type(norm) is PHCNorm and type(activation) is nn.ReLU
    alone = places[id(linear)] == 1 and places[id(norm)] == 1  # else the layer would have to do two things at once
    return usual and alone and not is_watched(linear, norm, activation)
