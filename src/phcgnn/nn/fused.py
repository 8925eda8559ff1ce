r"""Blocks of linear layer, batch norm, ReLU and dropout in training on the CPU, as one operation.

One operation after the other, every tensor of size rows x width goes through memory a dozen times a block, which takes
as long as the products. Here the rows are taken a piece at a time, and a piece stays in the cache from the norm of one
block through the product of the next to the sums of its statistics. What is kept for backward is the output of each
linear layer; what the norm, ReLU and dropout make of it is made again.

With :math:`\mathbf{a} = \mathbf{W}\mathbf{z} + \mathbf{b}`, its distance :math:`\mathbf{c}` from its mean over the
rows, its variance :math:`\boldsymbol\sigma^2`, and
:math:`\mathbf{s} = \boldsymbol\gamma / \sqrt{\boldsymbol\sigma^2 + \epsilon}`, a block and its gradients are

.. math::
    \mathbf{y} &= \mathbf{k} \odot \max(0, \mathbf{s} \odot \mathbf{c} + \boldsymbol\beta), \qquad
    \mathbf{g} = \mathbf{k} \odot [\mathbf{y} > 0] \odot \partial\mathbf{y} \\
    \partial\mathbf{a} &= \mathbf{s} \odot \Big(\mathbf{g} - \langle\mathbf{g}\rangle - \mathbf{c}\,
        \frac{\langle\mathbf{g} \odot \mathbf{c}\rangle}{\boldsymbol\sigma^2 + \epsilon}\Big)

The gradient of :math:`\mathbf{b}`, which the norm takes away again, is exactly zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phcgnn.nn.affine import affine, outer_sum
from phcgnn.nn.eager import plain_on_cpu
from phcgnn.nn.norm import PHCNorm

__all__ = ["Fused", "apply_fused"]

Settings = list[tuple[PHCNorm, Tensor | None]]

PIECE = 2**21
"""So many numbers of a tensor are worked on at a time: half a dozen such tensors are in use, and some megabytes of
cache are usual."""


class Fused(NamedTuple):
    r"""A block as tensors.

    Shapes:
        - **weight:** :math:`(F_{out}, F_{in})`; **bias, optional:** :math:`(F_{out},)`
        - **keep, optional:** :math:`(rows, 1\text{ or }n, F_{out}/n)`, what each unit is multiplied with at the end
    """

    weight: Tensor
    bias: Tensor | None
    norm: PHCNorm
    keep: Tensor | None


def apply_fused(x: Tensor, blocks: Sequence[Fused], skipped: Tensor | None = None) -> Tensor:
    """Apply blocks to rows, more than one and all plain tensors on the CPU, and add what skips them."""
    parameters = [p for block in blocks for p in (block.weight, block.bias, block.norm.weight, block.norm.bias)]
    settings: Settings = [(block.norm, block.keep) for block in blocks]
    return _Fused.apply(settings, x, skipped, *parameters)


class _Normed(NamedTuple):
    """What a block's linear layer gave, and what its norm, ReLU and dropout make of that."""

    a: Tensor
    mean: Tensor
    inverse: Tensor  # of the deviation
    scale: Tensor
    shift: Tensor
    keep: Tensor | None

    def activate(self, rows: slice) -> Tensor:
        """Return a piece of the block's output."""
        y = torch.addcmul(self.shift, self.a[rows], self.scale).relu_()
        return y if self.keep is None else _times(y, self.keep[rows])

    def through(self, gradient: Tensor, y: Tensor, rows: slice) -> Tensor:
        """Return what of a piece's gradient passes dropout and ReLU, given the piece's output."""
        passed = torch.ops.aten.threshold_backward(gradient, y, 0)
        return passed if self.keep is None else _times(passed, self.keep[rows])

    def centred(self, rows: slice) -> Tensor:
        """Return how far a piece of what the linear layer gave is from its mean."""
        return self.a[rows] - self.mean


class _Sums:
    """The two sums over the gradient of what a norm gives that its backward needs."""

    def __init__(self, normed: _Normed) -> None:
        self.total, self.dot = torch.zeros_like(normed.mean), torch.zeros_like(normed.mean)
        self._normed = normed

    def add(self, part: Tensor, rows: slice) -> Tensor:
        """Count a piece and return it."""
        self.total += part.sum(0)
        self.dot += self._normed.centred(rows).mul_(part).sum(0)
        return part


class _Fused(torch.autograd.Function):
    # forward takes the context: with setup_context, torch would read the signature again at every call

    @staticmethod
    def forward(ctx: Any, settings: Settings, x: Tensor, skipped: Tensor | None, *parameters: Tensor) -> Tensor:
        kept: list[_Normed] = []
        for (norm, keep), (weight, bias, gamma, beta) in zip(settings, _by_four(parameters), strict=True):
            a, mean, squares = _apply_linear(kept[-1].activate if kept else x.__getitem__, len(x), weight, bias)
            norm.track(mean, squares / (len(x) - 1))
            inverse = (squares / len(x)).add_(norm.eps).rsqrt_()
            scale = gamma * inverse
            kept.append(_Normed(a, mean, inverse, scale, torch.addcmul(beta, mean, scale, value=-1), keep))

        def finish(rows: slice) -> Tensor:
            part = kept[-1].activate(rows)
            return part if skipped is None else part.add_(skipped[rows])

        ctx.settings = settings
        ctx.save_for_backward(x, *parameters, *itertools.chain(*kept))
        return _by_pieces(finish, len(x), kept[-1].a.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        gradient, count, (x, *saved) = gradients[0], len(ctx.settings), ctx.saved_tensors
        parameters = list(_by_four(saved[: 4 * count]))
        if torch.is_grad_enabled() or not plain_on_cpu(gradient):
            return None, *_differentiate_plainly(ctx, x, parameters, gradient)
        kept = [_Normed(*saved[i : i + 6]) for i in range(4 * count, len(saved), 6)]
        last, sums = kept[-1], _Sums(kept[-1])
        passed = _by_pieces(
            lambda rows: sums.add(last.through(gradient[rows], last.activate(rows), rows), rows), *last.a.shape
        )
        found: list[Tensor | None] = []
        for number in reversed(range(count)):  # ``passed`` and ``sums`` are of this block's norm
            before = kept[number - 1] if number else None
            of_bias = None if parameters[number][1] is None else torch.zeros_like(parameters[number][1])
            norms = sums.dot * kept[number].inverse, sums.total
            wanted = number > 0 or ctx.needs_input_grad[1]
            of_weight, passed, sums = _differentiate_linear(
                kept[number], before, x, parameters[number][0], passed, sums, wanted
            )
            found = [of_weight, of_bias, *norms, *found]
        of_x = passed if ctx.needs_input_grad[1] else None
        return None, of_x, gradient if ctx.needs_input_grad[2] else None, *found


def _apply_linear(
    given: Callable[[slice], Tensor], size: int, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a linear layer's output, its mean over the rows, and the squares of the distances from it."""
    mean, squares = weight.new_zeros(len(weight)), weight.new_zeros(len(weight))

    def piece(rows: slice) -> Tensor:
        part = affine(given(rows), weight, bias)
        own = part.mean(0)  # and now those of all rows so far (Chan et al., 1983)
        away, share = own - mean, len(part) / rows.stop
        squares.add_((part - own).square_().sum(0)).addcmul_(away, away, value=rows.start * share)
        mean.add_(away, alpha=share)
        return part

    return _by_pieces(piece, size, len(weight)), mean, squares


def _differentiate_linear(
    normed: _Normed, before: _Normed | None, x: Tensor, weight: Tensor, passed: Tensor, sums: _Sums, wanted: bool
) -> tuple[Tensor, Tensor, _Sums]:
    """Return the gradient of a linear layer's weight, and what of its input's passes the block before, with its sums.

    Args:
        normed: The block of the layer.
        before: The block that its input comes from; None where that is ``x``.
        x: The input of the first block.
        weight: Of the layer.
        passed: The gradient of what the block's norm gives.
        sums: Over that.
        wanted: Whether the gradient of the input is.
    """
    level = sums.total * normed.scale / -len(x)
    slope = sums.dot * normed.inverse.square() * normed.scale / -len(x)
    of_weight, sums = torch.zeros_like(weight), sums if before is None else _Sums(before)

    def piece(rows: slice) -> Tensor:
        of_a = torch.addcmul(level, normed.centred(rows), slope).addcmul_(passed[rows], normed.scale)
        z = x[rows] if before is None else before.activate(rows)
        of_weight.add_(outer_sum(of_a, z))
        if not wanted:
            return of_a[:, :0]  # of no width
        of_z = affine(of_a, weight.t())
        return of_z if before is None else sums.add(before.through(of_z, z, rows), rows)

    return of_weight, _by_pieces(piece, *normed.a.shape), sums


def _differentiate_plainly(
    ctx: Any, x: Tensor, parameters: Sequence[Sequence[Tensor]], gradient: Tensor
) -> list[Tensor | None]:
    """Return the same gradients by operations that know their own: wanted twice, or for many cotangents at once."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # views of their own, for a parameter may stand in several places, ``x`` among what it led to
        inputs = [None if tensor is None else tensor.view_as(tensor) for tensor in (x, *itertools.chain(*parameters))]
        y = inputs[0]
        for (norm, keep), (weight, bias, gamma, beta) in zip(ctx.settings, _by_four(inputs[1:]), strict=True):
            a = torch.nn.functional.linear(y, weight, bias)
            y = torch.nn.functional.batch_norm(a, None, None, gamma, beta, training=True, eps=norm.eps).relu()
            y = y if keep is None else (y.view(len(y), -1, keep.shape[-1]) * keep).view_as(y)
        wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
        found = iter(torch.autograd.grad(y, wanted, gradient, create_graph=again))
        of_inputs = [next(found) if tensor is not None and tensor.requires_grad else None for tensor in inputs]
    return [of_inputs[0], gradient if ctx.needs_input_grad[2] else None, *of_inputs[1:]]


def _times(y: Tensor, keep: Tensor) -> Tensor:
    y.view(len(y), -1, keep.shape[-1]).mul_(keep)
    return y


def _by_four(parameters: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    return (parameters[i : i + 4] for i in range(0, len(parameters), 4))


def _by_pieces(make: Callable[[slice], Tensor], size: int, width: int) -> Tensor:
    """Put pieces of rows together, each asked for once and in order.

    They hold a power of two of rows whatever the number of rows, so that oneDNN knows the shape.
    """
    rows = 1 << max((PIECE // width).bit_length() - 1, 0)
    if rows >= size:
        return make(slice(0, size))
    whole: Tensor | None = None
    for start in range(0, size, rows):
        part = make(slice(start, min(start + rows, size)))
        whole = part.new_empty(size, part.shape[1]) if whole is None else whole
        whole[start : start + rows] = part
    assert whole is not None
    return whole
