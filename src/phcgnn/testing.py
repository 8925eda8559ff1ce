"""Checkers for people who write such layers: each raises an ``AssertionError`` that says what is wrong.

The graph checkers take a function ``(x, edge_index, edge_attr, ptr) -> Tensor``: ``ptr`` holds where each graph's nodes
begin, one entry more than there are graphs. A layer that needs less is wrapped in a lambda.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from phcgnn.nn.linear import PHMLinear

__all__ = [
    "GraphFunction",
    "assert_batch_equals_one_by_one",
    "assert_equals_kronecker_sum",
    "assert_never_stale",
    "assert_permutation_equivariant",
    "assert_permutation_invariant",
    "assert_resets_everything",
    "assert_seed_fixes_parameters",
]

GraphFunction = Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]


def assert_equals_kronecker_sum(
    layer: PHMLinear, x: Tensor | None = None, *, rtol: float | None = None, atol: float | None = None
) -> None:
    """Check a PHM layer against the definition: the explicit sum of ``torch.kron``, and all four gradients.

    The bias starts at zero, so random numbers take its place for the check; the layer is left as it was.

    Args:
        layer: The layer.
        x: An input. (default: five random rows)
        rtol: Relative tolerance. (default: that of ``torch.testing.assert_close`` for the type)
        atol: Absolute tolerance, likewise.

    >>> assert_equals_kronecker_sum(PHMLinear(6, 9, n=3))
    """
    x = torch.randn(5, layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device) if x is None else x
    x = x.detach().clone().requires_grad_()
    constants = layer.rule.constants.detach().clone().requires_grad_()
    weight = layer.weight.detach().clone().requires_grad_()
    terms = [torch.kron(c, w) for c, w in zip(constants.to(weight.dtype), weight, strict=True)]
    expected, actual = x @ torch.stack(terms).sum(0).mT, layer(x)
    leaves = {"C": (layer.rule.constants, constants), "W": (layer.weight, weight), "x": (x, x)}
    if layer.bias is not None:
        bias = torch.randn_like(layer.bias).requires_grad_(layer.bias.requires_grad)
        _assert_close(actual, expected + layer.bias, rtol, atol, "the layer is not the Kronecker sum")
        expected, actual = expected + bias, torch.func.functional_call(layer, {"bias": bias}, (x,))
        leaves["b"] = (bias, bias)
    _assert_close(actual, expected, rtol, atol, "the layer is not the Kronecker sum")
    if not torch.is_grad_enabled():
        return
    cotangent = torch.randn_like(expected)
    for name, (mine, reference) in leaves.items():
        if mine.requires_grad:
            assert actual.requires_grad, f"no gradient reaches {name}"
            (got,) = torch.autograd.grad(actual, mine, cotangent, retain_graph=True, allow_unused=True)
            (want,) = torch.autograd.grad(expected, reference, cotangent, retain_graph=True)
            assert got is not None, f"no gradient reaches {name}"
            _assert_close(got, want, rtol, atol, f"gradient of {name}")


def assert_never_stale(layer: nn.Module, x: Tensor, *, uncounted: bool | None = None) -> None:
    """Check that in eval mode the output follows every kind of change of every parameter and buffer.

    The layer is left as it was, also where the check fails.

    Args:
        layer: The layer.
        x: An input.
        uncounted: Whether to try writes through ``.data``, which no version counter sees. (default: on the CPU, where
            comparing contents costs no waiting for a device)
    """
    modes = {module: module.training for module in layer.modules()}
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    floating: dict[str, Tensor] = dict(layer.named_parameters())
    floating |= {name: value for name, value in layer.named_buffers() if value.is_floating_point()}
    try:
        layer.eval()
        with torch.no_grad():
            for name, value in floating.items():
                for what, change in _CHANGES.items():
                    if what == _UNCOUNTED and not (value.device.type == "cpu" if uncounted is None else uncounted):
                        continue
                    before = layer(x).clone()
                    change(value)
                    after = layer(x).clone()
                    assert not torch.equal(before, after), f"the output did not follow {what} of {name}"
                    layer.load_state_dict(state)
                    _assert_close(layer(x), before, None, None, f"the output did not follow load_state_dict of {name}")
    finally:
        layer.load_state_dict(state)
        for module, training in modes.items():
            module.training = training


_UNCOUNTED = "an in-place edit through .data"
_CHANGES: dict[str, Callable[[Tensor], object]] = {
    "an in-place edit": lambda value: value.mul_(1.5).add_(0.25),
    _UNCOUNTED: lambda value: value.data.mul_(1.5).add_(0.25),
    "an in-place edit of one entry": lambda value: value.view(-1)[-1].add_(1.0),
    "a new .data": lambda value: setattr(value, "data", value.data * 1.5 + 0.25),
}


def assert_resets_everything(module: nn.Module) -> None:
    """Check that ``reset_parameters`` writes every element: parameters are poisoned with NaN first."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(torch.nan)
    module.reset_parameters()  # type: ignore[operator]
    for name, parameter in module.named_parameters():
        assert parameter.isfinite().all(), (
            f"reset_parameters leaves {int(parameter.isnan().sum())} entries of {name} as they were"
        )


def assert_seed_fixes_parameters(factory: Callable[[], nn.Module]) -> None:
    """Check that ``torch.manual_seed`` alone decides every parameter, at construction."""
    states = []
    for _ in range(2):
        torch.manual_seed(20)
        states.append(factory().state_dict())
    for name, first in states[0].items():
        assert torch.equal(first, states[1][name]), f"{name} differs between two constructions with one seed"


def assert_permutation_equivariant(
    layer: GraphFunction, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, *, atol: float = 1e-5
) -> None:
    """Check that renaming the nodes of a graph, and reordering its edges, renames the output rows and no more."""
    ptr = torch.tensor([0, len(x)], device=x.device)
    nodes, renamed = _rename(x, edge_index, edge_attr)
    expected = layer(x, edge_index, edge_attr, ptr)[nodes]
    _assert_close(layer(*renamed, ptr), expected, 1e-4, atol, "renaming the nodes changes more than their order")


def assert_permutation_invariant(
    model: GraphFunction, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, *, atol: float = 1e-5
) -> None:
    """Check that renaming the nodes of a graph, and reordering its edges, leaves the graph's output alone."""
    ptr = torch.tensor([0, len(x)], device=x.device)
    _, renamed = _rename(x, edge_index, edge_attr)
    expected = model(x, edge_index, edge_attr, ptr)
    _assert_close(model(*renamed, ptr), expected, 1e-4, atol, "renaming the nodes changes the output of the graph")


def assert_batch_equals_one_by_one(
    model: GraphFunction, graphs: list[tuple[Tensor, Tensor, Tensor | None]], *, atol: float = 1e-5
) -> None:
    """Check that a batch of graphs ``(x, edge_index, edge_attr)`` gives what they give one by one, concatenated."""
    single = [model(x, e, a, torch.tensor([0, len(x)], device=x.device)) for x, e, a in graphs]
    sizes = torch.tensor([0] + [len(x) for x, _, _ in graphs], device=graphs[0][0].device)
    ptr = sizes.cumsum(0)
    edges = torch.cat([e + start for (_, e, _), start in zip(graphs, ptr[:-1], strict=True)], dim=1)
    attributes = [a for _, _, a in graphs if a is not None]
    batch = model(torch.cat([x for x, _, _ in graphs]), edges, torch.cat(attributes) if attributes else None, ptr)
    _assert_close(batch, torch.cat(single), 1e-4, atol, "graphs in one batch change one another")


def _rename(
    x: Tensor, edge_index: Tensor, edge_attr: Tensor | None
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor | None]]:
    nodes, edges = _shuffle(len(x), x.device), _shuffle(edge_index.shape[1], x.device)
    new_name = torch.empty_like(nodes)
    new_name[nodes] = torch.arange(len(x), device=x.device)
    attributes = None if edge_attr is None else edge_attr[edges]
    return nodes, (x[nodes], new_name[edge_index[:, edges]], attributes)


def _shuffle(count: int, device: torch.device) -> Tensor:
    """Return a random permutation that moves something, where there is one."""
    identity = torch.arange(count, device=device)
    order = torch.randperm(count, device=device)
    while count > 1 and torch.equal(order, identity):
        order = torch.randperm(count, device=device)
    return order


def _assert_close(actual: Tensor, expected: Tensor, rtol: float | None, atol: float | None, what: str) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, msg=lambda text: f"{what}: {text}")
