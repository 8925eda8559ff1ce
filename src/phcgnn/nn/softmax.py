"""Softmax over the neighbours, for messages that come sorted by target, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from phcgnn.nn.adjacency import Adjacency
from phcgnn.nn.eager import plain_on_cpu

__all__ = ["softmax_of_sorted"]

SPAN = 16.0
"""So far apart may logits be that share one shift: what a shift rounds away grows with its size, and a set is not to
depend on how large the logits of another are."""

RUN = 2**21
"""So many numbers of a tensor are worked on at a time, so that they stay in the cache from one pass to the next."""


def softmax_of_sorted(x: Tensor, beta: Tensor, adjacency: Adjacency) -> Tensor:
    """Do what :class:`~phcgnn.nn.aggregation.SoftmaxAggregation` does, in a third of the passes over the messages.

    Args:
        x: Messages in float32 or wider, in the order of the adjacency, plain tensors on the CPU, ``(E, k)``.
        beta: The temperature.
        adjacency: Which of them belong together.
    """
    return _SoftmaxOfSorted.apply(x, beta, adjacency.source_ptr, adjacency.degree)


class _SoftmaxOfSorted(torch.autograd.Function):
    # forward takes the context: with setup_context, torch would read the signature again at every call

    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: Tensor, ptr: Tensor, degree: Tensor) -> Tensor:
        size, scale, index = len(degree), float(beta), torch.repeat_interleave(degree, output_size=len(x))
        weights, total, found = torch.empty_like(x), x.new_zeros(size, x.shape[1]), x.new_zeros(size, x.shape[1])
        if len(x):
            low, high = (float(bound) * scale for bound in x.aminmax())
            common = abs(high - low) < SPAN  # then one shift is enough: no sum of weights can vanish
            if not common:
                highest = torch.zeros_like(found)
                highest.scatter_reduce_(0, index[:, None].expand_as(x), x * scale, "amax", include_self=False)
            for nodes, rows in _runs(ptr, x.shape[1]):
                part = torch.mul(x[rows], scale, out=weights[rows])
                part.sub_(max(low, high) if common else highest.index_select(0, index[rows]))
                part.mul_(math.log2(math.e)).exp2_()  # four times as fast as exp, which goes to MKL
                own, starts = torch.arange(len(part)), ptr[nodes.start : nodes.stop + 1] - rows.start
                total[nodes] = F.embedding_bag(own, part, starts, mode="sum", include_last_offset=True)
                found[nodes] = F.embedding_bag(own, part * x[rows], starts, mode="sum", include_last_offset=True)
        total.clamp_min_(torch.finfo(x.dtype).tiny)  # of the empty sets
        found.div_(total)
        ctx.save_for_backward(x, beta, ptr, index, found, weights, total)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, beta, ptr, index, found, weights, total = ctx.saved_tensors
        gradient = gradients[0]
        if torch.is_grad_enabled() or not plain_on_cpu(gradient):
            # wanted twice, or many at once: the same numbers by operations that know their derivatives
            logits = x * beta
            weights = (logits - logits.detach()).exp() * weights
            total = torch.zeros_like(total).index_add(0, index, weights).clamp_min(torch.finfo(x.dtype).tiny)
            found = torch.zeros_like(total).index_add(0, index, weights * x) / total
            share = weights * (gradient / total).index_select(0, index)
            slope = share * (x - found.index_select(0, index))
            return torch.addcmul(share, slope, beta), (slope * x).sum(), None, None
        result, scale, of_beta = torch.empty_like(x), float(beta), 0.0
        share_of_node = gradient / total
        for _, rows in _runs(ptr, x.shape[1]):
            targets = index[rows]
            share = torch.mul(weights[rows], share_of_node.index_select(0, targets), out=result[rows])
            slope = found.index_select(0, targets).sub_(x[rows]).mul_(share)
            of_beta -= float(torch.dot(slope.reshape(-1), x[rows].reshape(-1)))
            share.sub_(slope, alpha=scale)
        return result, beta.new_tensor(of_beta), None, None


def _runs(ptr: Tensor, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield runs of nodes with their messages."""
    starts = ptr.numpy()
    node, last = 0, len(starts) - 1
    while node < last:
        end = int(np.searchsorted(starts, starts[node] + max(RUN // width, 1), side="right")) - 1
        end = min(max(end, node + 1), last)
        yield slice(node, end), slice(int(starts[node]), int(starts[end]))
        node = end
