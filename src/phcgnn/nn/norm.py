"""Norms that know of components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phcgnn.errors import ShapeError, require_divisible
from phcgnn.functional import full_precision
from phcgnn.nn.eager import plain_on_cpu
from phcgnn.nn.precision import at_least_float32, keep_wide
from phcgnn.registry import Registry

__all__ = ["NORMS", "PHCNorm", "WhiteningNorm", "build_norm"]

_ROUNDINGS = 4  # of the trace: one was enough for every batch that was tried

NORMS: Registry[type[PHCNorm] | type[WhiteningNorm]] = Registry("norm")


@NORMS.register("component")
class PHCNorm(nn.BatchNorm1d):
    """Batch norm of each component by itself, which is exactly one ``BatchNorm1d`` over the whole width.

    Differs from it in two ways: any leading dimensions are the batch, and a batch of a single row, which has no
    variance, is normalised in training by the running statistics, which it leaves alone.

    Args:
        features (int): Width, a multiple of ``n``.
        n (int): Number of components.
        eps (float): Added to the variance.
        momentum (float): Weight of the newest batch in the running statistics.

    Shapes:
        - **input, output:** :math:`(*, k)`

    >>> PHCNorm(32, n=4)(torch.randn(7, 32)).shape
    torch.Size([7, 32])
    """

    def __init__(
        self,
        features: int,
        n: int = 4,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_divisible("PHCNorm", n, features=features)
        super().__init__(features, eps=eps, momentum=momentum, device=device, dtype=dtype)
        self.n = n

    def forward(self, x: Tensor) -> Tensor:  # (*, k) -> (*, k)
        """Apply the norm."""
        _require_width("PHCNorm", x, self.num_features)
        rows = x.reshape(-1, self.num_features)
        if self.training and rows.shape[0] > 1:
            if self.momentum is not None and plain_on_cpu(rows, self.weight, self.bias):
                return self._normalise(rows).view_as(x)
            return super().forward(rows).view_as(x)
        return F.batch_norm(
            rows, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        ).view_as(x)

    def _normalise(self, rows: Tensor) -> Tensor:
        """Do in training what ``BatchNorm1d`` does, with a faster backward."""
        if not self.track_running_stats:
            return _BatchNorm.apply(rows, self.weight, self.bias, None, None, 0.0, self.eps)[0]
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        statistics = self.running_mean, self.running_var
        return _BatchNorm.apply(rows, self.weight, self.bias, *statistics, self.momentum, self.eps)[0]

    def extra_repr(self) -> str:
        """Describe the norm for ``repr``."""
        return f"{self.num_features}, n={self.n}, eps={self.eps}, momentum={self.momentum}"


@NORMS.register("whitening")
class WhiteningNorm(nn.Module):
    r"""Batch norm that also decorrelates the components: what the paper compares against.

    For each of the ``k/n`` features the n components are centred and multiplied by the inverse Cholesky factor of their
    covariance over the batch, then mapped affinely:

    .. math:: \hat{\mathbf{x}} = \mathbf{L}^{-1}(\mathbf{x} - \boldsymbol\mu), \quad
              \mathbf{L}\mathbf{L}^\top = \boldsymbol\Sigma + (\epsilon + \delta)\mathbf{I}, \qquad
              \mathbf{y} = \boldsymbol\Gamma\hat{\mathbf{x}} + \boldsymbol\beta

    Components that depend on one another, or fewer rows than components, make :math:`\boldsymbol\Sigma` singular up to
    rounding, which grows with its size: :math:`\delta` is a few roundings of its trace, so that it has a factor at any
    scale. For n = 1 this is batch norm. Cost: :math:`O(k n)` a row and :math:`O(k n^2)` a batch; the statistics are
    taken and kept in float32 or wider, whatever the model is moved to. A batch of a single row is treated as in
    :class:`PHCNorm`.

    Args:
        features (int): Width k, a multiple of ``n``.
        n (int): Number of components.
        eps (float): Added to the diagonal of the covariance.
        momentum (float): Weight of the newest batch in the running statistics.

    Shapes:
        - **input, output:** :math:`(*, k)`
        - **weight, running_cov:** :math:`(k/n, n, n)`; **bias, running_mean:** :math:`(k/n, n)`

    >>> y = WhiteningNorm(8, n=4)(torch.randn(1000, 8))
    >>> torch.allclose(y[:, 0::2].T.cov(correction=0), torch.eye(4), atol=1e-3)
    True
    """

    running_mean: Tensor
    running_cov: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        features: int,
        n: int = 4,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_divisible("WhiteningNorm", n, features=features)
        super().__init__()
        self.features, self.n, self.eps, self.momentum = features, n, eps, momentum
        m = features // n
        self.weight = nn.Parameter(torch.empty(m, n, n, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(m, n, device=device, dtype=dtype))
        wide = at_least_float32(dtype)
        self.register_buffer("running_mean", torch.empty(m, n, device=device, dtype=wide))
        self.register_buffer("running_cov", torch.empty(m, n, n, device=device, dtype=wide))
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long, device=device))
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Zero mean, unit covariance."""
        self.running_mean.zero_()
        self.running_cov.copy_(torch.eye(self.n, device=self.running_cov.device))
        self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Identity map after whitening."""
        self.reset_running_stats()
        with torch.no_grad():
            self.weight.copy_(torch.eye(self.n, device=self.weight.device))
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:  # (*, k) -> (*, k)
        """Apply the norm."""
        _require_width("WhiteningNorm", x, self.features)
        wide = torch.promote_types(x.dtype, torch.float32)
        with full_precision(x.device.type):
            points = x.reshape(-1, self.n, self.features // self.n).permute(2, 1, 0).to(wide)  # (m, n, rows)
            rows = points.shape[-1]
            if self.training and rows > 1:
                mean = points.mean(-1)
                centred = points - mean[..., None]
                cov = centred @ centred.mT / rows
                self._track(mean.detach(), cov.detach() * (rows / (rows - 1)))
            else:
                mean, cov = self.running_mean.to(wide), self.running_cov.to(wide)
                centred = points - mean[..., None]
            factor = torch.linalg.cholesky(cov + self._ridge(cov.detach()))
            white = torch.linalg.solve_triangular(factor, centred, upper=False)
            mapped = self.weight.to(wide) @ white + self.bias.to(wide)[..., None]
        return mapped.permute(2, 1, 0).reshape(x.shape).to(x.dtype)

    def _ridge(self, cov: Tensor) -> Tensor:  # (m, n, n) -> (m, n, n)
        """Return what is added to the diagonal: eps, and what rounding may have taken from the least eigenvalue."""
        trace = cov.diagonal(dim1=-2, dim2=-1).sum(-1)
        size = self.eps + _ROUNDINGS * torch.finfo(cov.dtype).eps * trace
        return size[:, None, None] * torch.eye(self.n, dtype=cov.dtype, device=cov.device)

    def _track(self, mean: Tensor, cov: Tensor) -> None:
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_cov.lerp_(cov.to(self.running_cov.dtype), self.momentum)
            self.num_batches_tracked += 1

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        statistics = (self.running_mean, self.running_cov)

        def move(tensor: Tensor) -> Tensor:
            return (keep_wide(fn) if any(tensor is kept for kept in statistics) else fn)(tensor)

        return super()._apply(move, recurse)

    def extra_repr(self) -> str:
        """Describe the norm for ``repr``."""
        return f"{self.features}, n={self.n}, eps={self.eps}, momentum={self.momentum}"


def build_norm(
    norm: str | nn.Module | None,
    features: int,
    n: int,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Return a new norm for a name in :data:`NORMS`, the argument itself for a module, the identity for None.

    >>> build_norm("component", 32, n=4)
    PHCNorm(32, n=4, eps=1e-05, momentum=0.1)
    """
    if norm is None:
        return nn.Identity()
    if isinstance(norm, nn.Module):
        return norm
    return NORMS[norm](features, n, device=device, dtype=dtype)


class _BatchNorm(torch.autograd.Function):
    """Batch norm in training on the CPU, where torch's own backward takes several times as long as its arithmetic."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], inputs[1], output[1], output[2])
        ctx.eps = inputs[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, mean, scale), gradient = ctx.saved_tensors, gradients[0]
        if torch.is_grad_enabled():  # wanted twice: torch's own, which knows its derivative
            found = torch.ops.aten.native_batch_norm_backward(
                gradient, x, weight, None, None, mean, scale, True, ctx.eps, [True, True, True]
            )
            return *found, None, None, None, None
        rows = x.shape[0]
        centred = x - mean
        total = gradient.sum(0)
        dot = (gradient * centred).sum(0) * scale
        factor = weight * scale
        result = torch.addcmul(-factor * total / rows, gradient, factor)
        result.addcmul_(centred, -factor * scale * dot / rows)
        return result, dot, total, None, None, None, None


def _require_width(layer: str, x: Tensor, width: int) -> None:
    if x.dim() == 0 or x.shape[-1] != width:
        raise ShapeError(f"{layer}: the input", got=x.shape, expected=("*", width))
