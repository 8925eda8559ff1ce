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

__all__ = ["NORMS", "PHCNorm", "WhiteningNorm", "build_norm", "normalise"]

_CACHED = 2**17
"""So many numbers of a tensor are worked on at a time on the CPU."""

_ROUNDINGS = 4  # of the trace: one was enough for every batch that was tried

NORMS: Registry[type[PHCNorm] | type[WhiteningNorm]] = Registry("norm")


@NORMS.register("component")
class PHCNorm(nn.BatchNorm1d):
    """Batch norm of each component by itself, which is exactly one ``BatchNorm1d`` over the whole width.

    Differs from it in two ways: any leading dimensions are the batch, and a batch of a single row, which has no
    variance, is normalised in training by the running statistics, which it leaves alone.

    With a mask, the statistics are those of the rows where it is True, as if there were no others; the others give
    zero. Nothing then depends on how many there are but the values, so that a CUDA graph can hold it.

    Args:
        features (int): Width, a multiple of ``n``.
        n (int): Number of components.
        eps (float): Added to the variance.
        momentum (float): Weight of the newest batch in the running statistics.

    Shapes:
        - **input, output:** :math:`(*, k)`
        - **mask, optional:** :math:`(*)`, boolean

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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (*, k), (*) -> (*, k)
        """Apply the norm."""
        _require_width("PHCNorm", x, self.num_features)
        rows = x.reshape(-1, self.num_features)
        if mask is not None:
            _require_mask("PHCNorm", mask, x)
            if self.training:
                return self._apply_over_all(rows, mask.reshape(-1, 1)).view_as(x)
        elif self.training and rows.shape[0] > 1:
            if self.momentum is not None and _fits(rows, self.weight, self.bias):
                return self._apply_on_cpu(rows).view_as(x)
            return super().forward(rows).view_as(x)
        normed = F.batch_norm(
            rows, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        ).view_as(x)
        return normed if mask is None else torch.where(mask[..., None], normed, 0.0)

    def _apply_over_all(self, rows: Tensor, real: Tensor | None) -> Tensor:  # (rows, k), (rows, 1) -> (rows, k)
        """Normalise by the statistics of the real rows, which :meth:`_add` may sum over more than this process."""
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        number = wide.new_full((1,), len(wide)) if real is None else real.sum(0).to(wide)
        wide = _keep(real, wide)
        sums = self._add(torch.cat([wide.sum(0), number]))
        count = sums[-1].detach()
        mean = sums[:-1] / count.clamp_min(1)
        # what is centred sums to zero, so the variance does not change with the mean: one reduction less in backward
        variance = self._add(_keep(real, wide - mean.detach()).square().sum(0)) / count.clamp_min(1)
        with torch.no_grad():
            self.track(mean, variance * count / (count - 1).clamp_min(1), count > 1)
        alone = count <= 1  # one row has no variance, so the running statistics stand in
        mean = torch.where(alone, self.running_mean.to(wide), mean)  # type: ignore[union-attr]
        variance = torch.where(alone, self.running_var.to(wide), variance)  # type: ignore[union-attr]
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return _keep(real, (wide - mean) * scale + self.bias).to(rows.dtype)

    def _add(self, value: Tensor) -> Tensor:
        """Return a sum over this process's rows as the sum over all rows."""
        return value

    def track(self, mean: Tensor, variance: Tensor, several: Tensor | None = None) -> None:
        """Let the running statistics follow the mean and the unbiased variance of a batch, if it has several rows."""
        if not self.track_running_stats:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1 if several is None else several)
        weight = torch.ones_like(self.running_mean[0]) if several is None else several.to(self.running_mean)
        if self.momentum is None:  # then they are the mean over all batches so far
            weight = weight / self.num_batches_tracked.clamp_min(1).to(weight)
        else:
            weight = weight * self.momentum
        self.running_mean.lerp_(mean.to(weight), weight)
        self.running_var.lerp_(variance.to(weight), weight)

    def _apply_on_cpu(self, rows: Tensor) -> Tensor:
        """Do in training what ``BatchNorm1d`` does, with a faster backward."""
        tracks, momentum = self.track_running_stats, 0.0 if self.momentum is None else self.momentum
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        statistics = (self.running_mean, self.running_var) if tracks else (None, None)
        return _Norm.apply(rows, self.weight, self.bias, *statistics, momentum, self.eps)

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
    taken and kept in float32 or wider, whatever the model is moved to. A batch of a single row, and a mask, are treated
    as in :class:`PHCNorm`.

    Args:
        features (int): Width k, a multiple of ``n``.
        n (int): Number of components.
        eps (float): Added to the diagonal of the covariance.
        momentum (float): Weight of the newest batch in the running statistics.

    Shapes:
        - **input, output:** :math:`(*, k)`
        - **mask, optional:** :math:`(*)`, boolean
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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (*, k), (*) -> (*, k)
        """Apply the norm."""
        _require_width("WhiteningNorm", x, self.features)
        real = None
        if mask is not None:
            _require_mask("WhiteningNorm", mask, x)
            real = mask.reshape(-1)
        wide = torch.promote_types(x.dtype, torch.float32)
        with full_precision(x.device.type):
            points = x.reshape(-1, self.n, self.features // self.n).permute(2, 1, 0).to(wide)  # (m, n, rows)
            points = _keep(real, points)
            rows = points.shape[-1]
            if self.training and real is not None:
                mean, cov = self._over_real(points, real)
                centred = points - mean[..., None]
            elif self.training and rows > 1:
                mean = points.mean(-1)
                centred = points - mean[..., None]
                cov = centred @ centred.mT / rows
                self._track(mean.detach(), cov.detach() * (rows / (rows - 1)))
            else:
                mean, cov = self.running_mean.to(wide), self.running_cov.to(wide)
                centred = points - mean[..., None]
            factor = torch.linalg.cholesky(cov + self._ridge(cov.detach()))
            white = torch.linalg.solve_triangular(factor, centred, upper=False)
            mapped = _keep(real, self.weight.to(wide) @ white + self.bias.to(wide)[..., None])
        return mapped.permute(2, 1, 0).reshape(x.shape).to(x.dtype)

    def _over_real(self, points: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:  # (m, n, rows), (rows,)
        """Return mean and covariance of the real rows, tracked; the running ones where there is none."""
        count = real.sum().to(points)
        mean = points.sum(-1) / count.clamp_min(1)
        centred = _keep(real, points - mean[..., None])
        cov = centred @ centred.mT / count.clamp_min(1)
        several = count > 1
        with torch.no_grad():
            weight = self.momentum * several.to(self.running_mean)
            unbiased = cov * count / (count - 1).clamp_min(1)
            self.running_mean.lerp_(mean.to(weight), weight)
            self.running_cov.lerp_(unbiased.to(weight), weight)
            self.num_batches_tracked += several
        mean = torch.where(several, mean, self.running_mean.to(mean))
        return mean, torch.where(several, cov, self.running_cov.to(cov))

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


def normalise(norm: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:  # (*, k), (*) -> (*, k)
    """Apply a norm to the rows that are real; with a mask, the others give zero.

    Raises:
        ValueError: The norm takes statistics over rows and knows of no mask.
    """
    if mask is None:
        return norm(x)
    if isinstance(norm, PHCNorm | WhiteningNorm):
        return norm(x, mask)
    if isinstance(norm, nn.modules.batchnorm._NormBase):
        raise ValueError(
            f"{type(norm).__name__} would count the ghosts of a padded batch; use norm='component' or 'whitening', or "
            "batches without padding."
        )
    return torch.where(mask[..., None], norm(x), 0.0)


def _keep(real: Tensor | None, x: Tensor) -> Tensor:
    """Return zero where nothing is real, so that not even a NaN there reaches what is."""
    return x if real is None else torch.where(real, x, 0.0)


def _require_mask(layer: str, mask: Tensor, x: Tensor) -> None:
    if mask.shape != x.shape[:-1] or mask.dtype != torch.bool:
        raise ShapeError(
            f"{layer}: the mask ({mask.dtype})",
            got=mask.shape,
            expected=tuple(x.shape[:-1]),
            hint="it is boolean, one entry a row",
        )


def _fits(rows: Tensor, weight: Tensor, bias: Tensor) -> bool:
    wide = rows.dtype == weight.dtype in (torch.float32, torch.float64)
    return wide and plain_on_cpu(rows, weight, bias)


class _Norm(torch.autograd.Function):
    """Batch norm in training on the CPU, where torch's backward takes its time."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        y, mean, scale = torch.native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)
        ctx.eps = eps
        ctx.save_for_backward(x, weight, mean, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, mean, scale), gradient = ctx.saved_tensors, gradients[0]
        if torch.is_grad_enabled() or not plain_on_cpu(gradient):  # wanted twice, or many at once: torch's own
            found = torch.ops.aten.native_batch_norm_backward(
                gradient, x, weight, None, None, mean, scale, True, ctx.eps, [True, True, True]
            )
            return *found, *(None,) * 4
        result, total, dot = torch.empty_like(x), torch.zeros_like(mean), torch.zeros_like(mean)
        rows = max(_CACHED // x.shape[1], 1)
        runs = [slice(start, start + rows) for start in range(0, len(x), rows)]
        for run in runs:  # so few rows at a time stay in the cache from one pass to the next
            total += gradient[run].sum(0)
            dot += ((x[run] - mean).mul_(gradient[run])).sum(0)
        dot *= scale
        factor = weight * scale
        shift, slope = -factor * total / len(x), -factor * scale * dot / len(x)
        for run in runs:
            torch.addcmul(shift, gradient[run], factor, out=result[run]).addcmul_(x[run] - mean, slope)
        return result, dot, total, *(None,) * 4


def _require_width(layer: str, x: Tensor, width: int) -> None:
    if x.dim() == 0 or x.shape[-1] != width:
        raise ShapeError(f"{layer}: the input", got=x.shape, expected=("*", width))
