r"""Pure functions under the layers: the Kronecker sum, the PHM product, the layout of components.

Features are *component-major*: of a width :math:`k = n m` the first m entries are component 1, the next m component 2.
"""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import Tensor

from phcgnn.errors import ShapeError, require_divisible

__all__ = [
    "full_precision",
    "join_components",
    "kronecker_sum",
    "nearest_kronecker_sum",
    "phm_linear",
    "split_components",
]


def split_components(x: Tensor, n: int) -> Tensor:
    """View ``(*, n*m)`` as ``(*, n, m)``.

    >>> split_components(torch.arange(6), n=2)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    require_divisible("split_components", n, features=x.shape[-1])
    return x.unflatten(-1, (n, -1))


def join_components(x: Tensor) -> Tensor:
    """View ``(*, n, m)`` as ``(*, n*m)``; the inverse of :func:`split_components`."""
    return x.flatten(-2)


def kronecker_sum(constants: Tensor, weight: Tensor) -> Tensor:
    r"""Build the dense weight of a PHM layer.

    .. math:: \mathbf{U} = \sum_{i} \mathbf{C}_i \otimes \mathbf{W}_i, \qquad
              \mathbf{U}_{(p,a),(q,b)} = \sum_i (\mathbf{C}_i)_{pq} (\mathbf{W}_i)_{ab}

    The sum over i is one product of an :math:`n^2 \times terms` with a :math:`terms \times ab` matrix, the rest is one
    change of layout: nothing larger than the result is allocated, forward or backward, and the cost is ``terms``
    multiplications an entry of the result. The sum is taken in the wider of the two precisions, whatever autocast
    says, and returned in that of ``weight``.

    Shapes:
        - **constants:** :math:`(terms, n, n)`
        - **weight:** :math:`(terms, F_{out}/n, F_{in}/n)`
        - **output:** :math:`(F_{out}, F_{in})`

    >>> kronecker_sum(torch.eye(2)[None], torch.tensor([[[3.0]]]))
    tensor([[3., 0.],
            [0., 3.]])
    """
    if constants.dim() != 3 or constants.shape[1] != constants.shape[2]:
        raise ShapeError("kronecker_sum: `constants`", got=constants.shape, expected=("terms", "n", "n"))
    terms, n, _ = constants.shape
    if weight.dim() != 3 or weight.shape[0] != terms:
        raise ShapeError("kronecker_sum: `weight`", got=weight.shape, expected=(terms, "out/n", "in/n"))
    rows, columns = weight.shape[1:]
    dtype = torch.promote_types(constants.dtype, weight.dtype)
    with full_precision(weight.device.type):
        blocks = constants.to(dtype).flatten(1).t() @ weight.to(dtype).flatten(1)  # (n*n, rows*columns)
    dense = blocks.view(n, n, rows, columns).transpose(1, 2).reshape(n * rows, n * columns)
    return dense.to(weight.dtype)


def phm_linear(x: Tensor, constants: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Apply a PHM layer, Eq. (3)-(4).

    .. math:: \mathbf{y} = \Big(\sum_i \mathbf{C}_i \otimes \mathbf{W}_i\Big)\mathbf{x} + \mathbf{b}

    Shapes:
        - **x:** :math:`(*, F_{in})`
        - **constants:** :math:`(terms, n, n)`
        - **weight:** :math:`(terms, F_{out}/n, F_{in}/n)`
        - **bias:** :math:`(F_{out},)`
        - **output:** :math:`(*, F_{out})`
    """
    return F.linear(x, kronecker_sum(constants, weight), bias)


def nearest_kronecker_sum(
    dense: Tensor, n: int, terms: int | None = None, constants: Tensor | None = None
) -> tuple[Tensor, Tensor, float]:
    r"""Return the sum of Kronecker products that is nearest to a dense weight in the Frobenius norm.

    Rearranged so that block :math:`(p, q)` becomes one row, a sum of Kronecker products is a matrix of rank ``terms``:
    the truncated singular value decomposition is the answer (Van Loan and Pitsianis, 1993). With the constants given,
    it is a least squares problem in the weights. Free constants are scaled to :math:`\lVert\mathbf{C}_i\rVert_F^2 = n`,
    as those of the named algebras are.

    Args:
        dense: The weight to come near to.
        n: Dimension of the rule.
        terms: Number of products. (default: ``n``, or as many as ``constants`` has)
        constants: A rule to keep. (default: the best one is found)

    Shapes:
        - **dense:** :math:`(F_{out}, F_{in})`
        - **output:** constants :math:`(terms, n, n)`, weight :math:`(terms, F_{out}/n, F_{in}/n)`, and the relative
          error :math:`\lVert\mathbf{U} - \mathbf{D}\rVert_F / \lVert\mathbf{D}\rVert_F`
    """
    if dense.dim() != 2:
        raise ShapeError("nearest_kronecker_sum: `dense`", got=dense.shape, expected=("out", "in"))
    out_features, in_features = dense.shape
    require_divisible("nearest_kronecker_sum", n, out_features=out_features, in_features=in_features)
    rows, columns = out_features // n, in_features // n
    matrix = dense.detach().double().view(n, rows, n, columns).transpose(1, 2).reshape(n * n, rows * columns)
    if constants is None:
        count = n if terms is None else terms
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        kept = min(count, len(values))
        rule, factors = matrix.new_zeros(count, n * n), matrix.new_zeros(count, rows * columns)
        rule[:kept] = left[:, :kept].t() * n**0.5
        factors[:kept] = values[:kept, None] * right[:kept] / n**0.5
    else:
        rule = constants.detach().to(matrix).flatten(1)
        factors = torch.linalg.lstsq(rule.t().cpu(), matrix.cpu(), driver="gelsd").solution.to(matrix.device)
    error = torch.linalg.vector_norm(rule.t() @ factors - matrix)
    norm = torch.linalg.vector_norm(matrix)
    relative = (error / norm).item() if norm > 0 else 0.0
    return rule.view(-1, n, n).to(dense.dtype), factors.view(-1, rows, columns).to(dense.dtype), relative


def full_precision(device_type: str) -> contextlib.AbstractContextManager[object]:
    """Return a context that switches autocast off, where it is on."""
    # no more than this is traced by the Dynamo of torch 2.11
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()
