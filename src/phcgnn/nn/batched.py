"""The dense weights of all PHM layers of one shape, built together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from phcgnn.functional import full_precision
from phcgnn.nn.linear import PHMLinear

__all__ = ["batched_weights", "kronecker_sums"]


def kronecker_sums(constants: Tensor, weights: Tensor) -> Tensor:
    r"""Build the dense weights of several PHM layers by one batched product: :func:`kronecker_sum` of each.

    Shapes:
        - **constants:** :math:`(S, terms, n, n)`
        - **weights:** :math:`(S, terms, F_{out}/n, F_{in}/n)`
        - **output:** :math:`(S, F_{out}, F_{in})`

    >>> kronecker_sums(torch.eye(2).expand(3, 1, 2, 2), torch.ones(3, 1, 4, 5)).shape
    torch.Size([3, 8, 10])
    """
    layers, _, n, _ = constants.shape
    rows, columns = weights.shape[2:]
    dtype = torch.promote_types(constants.dtype, weights.dtype)
    with full_precision(weights.device.type):
        blocks = constants.to(dtype).flatten(2).mT @ weights.to(dtype).flatten(2)  # (S, n*n, rows*columns)
    dense = blocks.view(layers, n, n, rows, columns).transpose(2, 3).reshape(layers, n * rows, n * columns)
    return dense.to(weights.dtype)


@contextlib.contextmanager
def batched_weights(model: nn.Module) -> Iterator[None]:
    """While it is entered, the PHM layers of a model use dense weights that were built together when it was.

    A network of 16 equal layers then builds its weights by one product instead of 32, which on a GPU is the difference
    between one launch and 32. Autograd follows them to C and W, so leave it only after the forward; a change of a
    parameter meanwhile is not seen.

    >>> model = nn.Sequential(PHMLinear(8, 8, n=2), PHMLinear(8, 8, n=2))
    >>> with batched_weights(model):
    ...     y = model(torch.ones(3, 8))
    >>> torch.allclose(y, model(torch.ones(3, 8)), atol=1e-6)
    True
    """
    kinds: dict[object, list[PHMLinear]] = {}
    for layer in model.modules():
        if isinstance(layer, PHMLinear):
            kind = (layer.n, layer.weight.shape, layer.weight.dtype, layer.rule.constants.dtype, layer.weight.device)
            kinds.setdefault(kind, []).append(layer)
    layers = [layer for alike in kinds.values() for layer in alike]
    try:
        for alike in kinds.values():
            constants = torch.stack([layer.rule.constants for layer in alike])
            dense = kronecker_sums(constants, torch.stack([layer.weight for layer in alike]))
            for layer, own in zip(alike, dense.unbind(), strict=True):
                layer._built = own
        yield
    finally:
        for layer in layers:
            layer._built = None
