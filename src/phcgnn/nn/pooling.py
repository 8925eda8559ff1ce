"""From nodes to graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.aggr import Aggregation, MaxAggregation, MeanAggregation, SumAggregation

from phcgnn.functional import full_precision, join_components, split_components
from phcgnn.nn.adjacency import sum_rows
from phcgnn.nn.affine import Affine, affine
from phcgnn.nn.aggregation import AGGREGATIONS, SetAggregation, build_aggregation
from phcgnn.nn.eager import is_watched
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.real import RealTransformer
from phcgnn.registry import Registry, unknown

__all__ = ["POOLINGS", "SoftAttentionPooling", "build_pooling", "build_readout"]

POOLINGS: Registry[Callable[..., Aggregation]] = Registry("pooling")
"""Functions of the width, n, and the options of :class:`PHMLinear`."""

POOLINGS.register("sum")(lambda features, n, **options: SumAggregation())
POOLINGS.register("mean")(lambda features, n, **options: MeanAggregation())
POOLINGS.register("max")(lambda features, n, **options: MaxAggregation())


@POOLINGS.register("attention")
class SoftAttentionPooling(SetAggregation):
    r"""Sum over a graph's nodes, each feature weighted by a gate of its own, Eq. (15)-(16).

    .. math:: \mathbf{g}_v = \sigma\big(\mathbf{A}\, \text{PHM}(\mathbf{h}_v) + \mathbf{b}\big), \qquad
              \mathbf{h}_G = \sum_{v \in G} (\mathbf{g}_v, \dots, \mathbf{g}_v) \odot \mathbf{h}_v

    The gate of a feature is one real number for all n of its components; both maps in it are applied as one. The sum is
    taken in float32 or wider. A graph without nodes gives zero.

    Set ``keep_gates`` to find the gates of the last forward in ``last_gates``, one row a node; :meth:`gates` computes
    them alone.

    Args:
        features (int): Width k, a multiple of ``n``.
        n (int): Number of components.
        **options: Whatever else :class:`PHMLinear` takes.

    Shapes:
        - **input:** :math:`(V, k)`, and the graph of each node (``index``) or where each graph begins (``ptr``)
        - **output:** :math:`(G, k)`
        - **gates:** :math:`(V, k/n)`

    >>> pool = SoftAttentionPooling(8, n=4)
    >>> pool(torch.randn(5, 8), ptr=torch.tensor([0, 2, 5])).shape
    torch.Size([2, 8])
    """

    def __init__(self, features: int, n: int = 4, **options: Unpack[PHMOptions]) -> None:
        super().__init__()
        self.features, self.n = features, n
        self.linear = PHMLinear(features, features, n, **options)
        self.real = RealTransformer(features, n, device=options.get("device"), dtype=options.get("dtype"))
        self.keep_gates = False
        self.last_gates: Tensor | None = None

    def reset_parameters(self) -> None:
        """Start both layers anew."""
        self.linear.reset_parameters()
        self.real.reset_parameters()

    def gates(self, x: Tensor) -> Tensor:  # (V, k) -> (V, k/n)
        """Compute the gates."""
        linear, last = self.linear, self.real.affine
        plain = type(linear) in (PHMLinear, nn.Linear, Affine) and type(last) in (nn.Linear, Affine)
        fits = plain and type(self.real) is RealTransformer and x.dim() > 0 and x.shape[-1] == self.features
        takes_positive_part = getattr(linear, "relu", False) or getattr(last, "relu", False)
        if last is None or not fits or takes_positive_part or is_watched(linear, self.real, last):
            return self.real(linear(x)).sigmoid()
        # nothing stands between the two maps, so they are one: A (U x + b) + c = (A U) x + (A b + c)
        with full_precision(x.device.type):
            weight = last.weight @ (linear.current_weight() if isinstance(linear, PHMLinear) else linear.weight)
            bias = last.bias if linear.bias is None else F.linear(linear.bias, last.weight, last.bias)
        return affine(x, weight, bias).sigmoid()

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """Pool."""
        gates = self.gates(x)
        if self.keep_gates:
            self.last_gates = gates.detach()
        gated = join_components(split_components(x, self.n) * gates.unsqueeze(-2))
        gated = gated.to(torch.promote_types(gated.dtype, torch.float32))
        if ptr is None:
            return self.reduce(gated, index, None, dim_size, dim, reduce="sum").to(x.dtype)
        rows = torch.arange(gated.shape[0] + 1, device=x.device)
        if index is None:
            graphs = torch.arange(ptr.shape[0] - 1, device=x.device)
            index = torch.repeat_interleave(graphs, ptr.diff(), output_size=gated.shape[0])
        return sum_rows(gated, rows[:-1], ptr, index, rows).to(x.dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.features}, n={self.n})"


def build_pooling(pooling: str | Aggregation, features: int, n: int = 4, **options: Unpack[PHMOptions]) -> Aggregation:
    """Return a new readout for a name, the argument itself for an instance.

    Args:
        pooling: A name in :data:`POOLINGS`, any other name that :func:`~phcgnn.nn.aggregation.build_aggregation`
            understands, or any ``torch_geometric.nn.aggr.Aggregation``.
        features: Width of the nodes.
        n: Number of components.
        **options: Whatever else :class:`PHMLinear` takes.

    >>> build_pooling("attention", 8, n=2)
    SoftAttentionPooling(8, n=2)
    """
    if isinstance(pooling, Aggregation):
        return pooling
    if pooling in POOLINGS:
        return POOLINGS[pooling](features, n, **options)
    return build_readout(pooling, features)


def build_readout(pooling: str, features: int) -> Aggregation:
    """Return a new aggregation for a name that is not in :data:`POOLINGS`; the error for an unknown one knows both.

    >>> build_readout("median", 8)
    MedianAggregation()
    """
    try:
        return build_aggregation(pooling, features)
    except ValueError as error:
        if not str(error).startswith("unknown aggregation"):
            raise
        raise ValueError(unknown("pooling", pooling, sorted({*POOLINGS, *AGGREGATIONS}))) from None
