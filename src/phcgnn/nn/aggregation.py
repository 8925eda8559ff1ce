"""How messages become one: by name, or any aggregation of PyTorch Geometric."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr
from torch_geometric.nn.aggr import Aggregation

from phcgnn.errors import require_divisible
from phcgnn.functional import join_components, split_components
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.precision import NARROW, at_least_float32
from phcgnn.registry import Registry

__all__ = [
    "AGGREGATIONS",
    "SCALERS",
    "PNAAggregation",
    "SetAggregation",
    "SoftmaxAggregation",
    "build_aggregation",
    "reduce_rows",
    "require_degrees",
]

AGGREGATIONS: Registry[Callable[[int], Aggregation]] = Registry("aggregation")
"""Functions of the width; ``pna`` needs more and is built by :func:`build_aggregation` alone."""

SCALERS: Registry[Callable[[Tensor, float, float], Tensor]] = Registry("scaler")
"""Functions of the nodes' degrees, their mean and the mean of their ``log(degree + 1)``."""

AGGREGATIONS.register("sum")(lambda features: aggr.SumAggregation())
AGGREGATIONS.register("mean")(lambda features: aggr.MeanAggregation())
AGGREGATIONS.register("min")(lambda features: aggr.MinAggregation())
AGGREGATIONS.register("max")(lambda features: aggr.MaxAggregation())
AGGREGATIONS.register("softmax")(lambda features: SoftmaxAggregation())
AGGREGATIONS.register("std")(lambda features: aggr.StdAggregation())
AGGREGATIONS.register("var")(lambda features: aggr.VarAggregation())
AGGREGATIONS.register("median")(lambda features: aggr.MedianAggregation())
AGGREGATIONS.register("power-mean")(lambda features: aggr.PowerMeanAggregation(learn=True))
AGGREGATIONS.register("attentional")(lambda features: aggr.AttentionalAggregation(nn.Linear(features, 1)))
AGGREGATIONS.register("deep-sets")(
    lambda features: aggr.DeepSetsAggregation(
        nn.Sequential(nn.Linear(features, features), nn.ReLU()), nn.Linear(features, features)
    )
)
AGGREGATIONS.register("lstm")(lambda features: aggr.LSTMAggregation(features, features))
AGGREGATIONS.register("set-transformer")(lambda features: aggr.SetTransformerAggregation(features))

_ADDS = (aggr.SumAggregation, aggr.MeanAggregation, aggr.VarAggregation, aggr.StdAggregation)
_EXTREMES = {aggr.MinAggregation: "amin", aggr.MaxAggregation: "amax"}


@SCALERS.register("identity")
def _identity(degree: Tensor, mean: float, log_mean: float) -> Tensor:
    return torch.ones_like(degree)


@SCALERS.register("amplification")
def _amplification(degree: Tensor, mean: float, log_mean: float) -> Tensor:
    return (degree + 1).log() / log_mean


@SCALERS.register("attenuation")
def _attenuation(degree: Tensor, mean: float, log_mean: float) -> Tensor:
    return log_mean / (degree.clamp_min(1) + 1).log()


@SCALERS.register("linear")
def _linear(degree: Tensor, mean: float, log_mean: float) -> Tensor:
    return degree / mean


@SCALERS.register("inverse-linear")
def _inverse_linear(degree: Tensor, mean: float, log_mean: float) -> Tensor:
    return mean / degree.clamp_min(1)


class SetAggregation(Aggregation):
    """Base of the aggregations that take rows in any order and sets without elements, as :func:`reduce_rows` gives."""


class SoftmaxAggregation(SetAggregation):
    r"""Mean of the messages, each channel weighted by a softmax over the incoming edges.

    .. math:: \mathbf{m}_v = \sum_{u} \mathbf{a}_{uv} \odot \mathbf{x}_{uv}, \qquad
              \mathbf{a}_{uv} = \frac{\exp(\beta\, \mathbf{x}_{uv})}{\sum_{w} \exp(\beta\, \mathbf{x}_{wv})}

    :math:`\beta` is one learnable number, which starts at 1: near 0 this is the mean, far above it the maximum. A set
    without elements gives zero. The weights are taken in float32 or wider, and normalised after the sum, so that no
    division is as large as the messages.

    Shapes:
        - **input:** :math:`(E, k)`, and the set of each row
        - **output:** :math:`(V, k)`

    >>> SoftmaxAggregation()(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 2]), dim_size=3).flatten()
    tensor([0.7311, 0.0000, 5.0000], grad_fn=...)
    """

    def __init__(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.empty((), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start at 1."""
        nn.init.ones_(self.beta)

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """Aggregate."""
        self.assert_two_dimensional_input(x, dim)
        if index is None:
            index = _index_of(ptr, x.shape[0])
        size = int(index.max()) + 1 if dim_size is None else dim_size
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = x.to(wide) * self.beta
        highest = logits.detach().new_zeros(size, x.shape[1])
        highest = highest.scatter_reduce(0, index[:, None].expand_as(x), logits.detach(), "amax", include_self=False)
        weights = (logits - highest.index_select(0, index)).exp()
        zeros = weights.new_zeros(size, x.shape[1])
        total = zeros.index_add(0, index, weights)  # at least 1 where there are messages
        return (zeros.index_add(0, index, weights * x) / total.clamp_min(1)).to(x.dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PNAAggregation(SetAggregation):
    r"""Several aggregators times several scalers of the degree, then one PHM layer back to the width.

    .. math:: \mathbf{m}_v = \text{PHM}\Big(\big\Vert_{s, a}\; s(d_v)\, a\{\mathbf{x}_{uv}\}\Big)

    (Corso et al., 2020). The mean degree and the mean of :math:`\log(d + 1)` are those over the nodes of the training
    data: each degree counts as often as it occurs. Components stay together: component p of the concatenation holds
    component p of every term. A set without elements gives the bias of the PHM layer.

    Args:
        features (int): Width.
        n (int): Number of components.
        degrees (sequence of int): Histogram of the training nodes' degrees: entry d is the number of nodes with d
            incoming edges.
        aggregators (sequence of str): Names in :data:`AGGREGATIONS`.
        scalers (sequence of str): Names in :data:`SCALERS`.
        **options: Whatever else :class:`PHMLinear` takes.

    >>> pna = PNAAggregation(8, n=2, degrees=[0, 3, 5])
    >>> pna(torch.randn(4, 8), torch.tensor([0, 0, 1, 2]), dim_size=3).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        features: int,
        n: int = 4,
        *,
        degrees: Sequence[int],
        aggregators: Sequence[str] = ("mean", "min", "max", "std"),
        scalers: Sequence[str] = ("identity", "amplification", "attenuation"),
        **options: Unpack[PHMOptions],
    ) -> None:
        require_divisible("PNAAggregation", n, features=features)
        histogram = require_degrees("PNAAggregation", degrees)
        if not aggregators or not scalers:
            raise ValueError("PNAAggregation: `aggregators` and `scalers` must name at least one each.")
        super().__init__()
        self.features, self.n = features, n
        self.aggregators, self.scalers = tuple(aggregators), tuple(scalers)
        self._scale = [SCALERS[name] for name in scalers]
        self.aggregate = nn.ModuleList(AGGREGATIONS[name](features) for name in aggregators)
        nodes, values = histogram.sum(), torch.arange(len(histogram), device="cpu")
        self.mean_degree = float((histogram * values).sum() / nodes)
        self.mean_log_degree = float((histogram * (values + 1).log()).sum() / nodes)
        self.project = PHMLinear(features * len(aggregators) * len(scalers), features, n, **options)

    def reset_parameters(self) -> None:
        """Start the aggregators and the projection anew."""
        for module in (*self.aggregate, self.project):
            module.reset_parameters()

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """Aggregate."""
        self.assert_two_dimensional_input(x, dim)
        if index is None:
            index = _index_of(ptr, x.shape[0])
        size = int(index.max()) + 1 if dim_size is None else dim_size
        ones = torch.ones(index.shape[0], dtype=at_least_float32(x.dtype), device=x.device)  # bfloat16 counts to 256
        degree = ones.new_zeros(size).index_add(0, index, ones)
        terms = [reduce_rows(module, x, index, size) for module in self.aggregate]
        scales = [scale(degree, self.mean_degree, self.mean_log_degree).to(x.dtype)[:, None] for scale in self._scale]
        parts = [split_components(term * scale, self.n) for scale in scales for term in terms]
        return self.project(join_components(torch.cat(parts, dim=-1)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.features}, n={self.n}, {self.aggregators} x {self.scalers})"


def reduce_rows(aggregation: Aggregation, x: Tensor, index: Tensor, size: int, ptr: Tensor | None = None) -> Tensor:
    """Aggregate the rows of each set, by any aggregation, so that no set changes another and an empty one gives zero.

    The plain reductions of PyTorch Geometric differ in two ways. Whatever adds or counts does so in float32 or wider:
    bfloat16 counts to 256, and a sum in it stops growing soon after. And the extremes do not ask for ``torch_scatter``,
    which PyTorch Geometric recommends on a GPU. All others are given sorted rows and no empty sets; and LSTM, GRU and
    their like, which PyTorch Geometric lets run on over the filling of a padded batch, stop at a set's last element.
    (Under ``torch.compile`` they do run on: the number of sets of each size is not known there.)

    Args:
        aggregation: Any aggregation.
        x: Rows, ``(E, k)``.
        index: The set of each row, ``(E,)``.
        size: Number of sets.
        ptr: Where each set begins, if the rows are sorted.
    """
    if type(aggregation) in _EXTREMES:
        reduce, sets = _EXTREMES[type(aggregation)], x.new_zeros(size, x.shape[1])
        return sets.scatter_reduce(0, index[:, None].expand_as(x), x, reduce, include_self=False)
    if type(aggregation) in _ADDS and x.dtype in NARROW:
        return aggregation(x.float(), index, ptr=ptr, dim_size=size, dim=0).to(x.dtype)
    if isinstance(aggregation, _ANY_SETS):
        return aggregation(x, index, ptr=ptr, dim_size=size, dim=0)
    return _reduce_present(aggregation, x, index, size)


def _reduce_present(aggregation: Aggregation, x: Tensor, index: Tensor, size: int) -> Tensor:
    """Aggregate the sets that have elements, sorted; every other set gives zero.

    Some of PyTorch Geometric's aggregations want sorted rows, fail at an empty set or answer it by a bias. Those in
    ``_PADDED`` fill every set up to the largest one and read the filling, which lets the sets of a batch change one
    another: they are given the sets of one size at a time, which need no filling.
    """
    if x.shape[0] == 0:
        with torch.no_grad():  # a copy, for its statistics shall not count the example, from which the width is known
            probe = copy.deepcopy(aggregation).eval()
            example = probe(x.new_zeros(1, x.shape[1]), index.new_zeros(1), dim_size=1, dim=0)
        return example.new_zeros(size, example.shape[1])
    order = index.argsort(stable=True)
    x, index = x[order], index[order]
    counts = index.new_zeros(size).index_add(0, index, torch.ones_like(index))
    if torch.compiler.is_compiling():  # where the number of sets with elements cannot be known
        received = aggregation(x, index, dim_size=size, dim=0)
        return torch.where((counts > 0)[:, None], received, torch.zeros_like(received))
    padded = any(isinstance(module, _PADDED) for module in aggregation.modules())
    parts = []
    for length in [length for length in counts.unique().tolist() if length] if padded else [None]:
        group = counts > 0 if length is None else counts == length
        rows, sets, room = group[index], group.nonzero()[:, 0], {}
        if length is not None and isinstance(aggregation, aggr.PatchTransformerAggregation):  # it would round down
            room["max_num_elements"] = -(-length // aggregation.patch_size) * aggregation.patch_size
        places = (group.cumsum(0) - 1)[index[rows]]
        parts.append((sets, aggregation(x[rows], places, dim_size=sets.shape[0], dim=0, **room)))
    received = parts[0][1].new_zeros(size, parts[0][1].shape[1])
    return received.index_copy(0, torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))


def require_degrees(where: str, degrees: Sequence[int]) -> Tensor:
    """Refuse what is no histogram of degrees with some above 0; return it in float64."""
    histogram = torch.as_tensor(degrees, dtype=torch.float64, device="cpu")
    if histogram.dim() != 1 or (histogram < 0).any() or not histogram[1:].sum() > 0:
        raise ValueError(
            f"{where}: `degrees` must count the nodes of each degree, some of them above 0, "
            f"got {list(degrees)!r}; torch.bincount of the training nodes' degrees gives it."
        )
    return histogram


_ANY_SETS = (SetAggregation, *_ADDS)
_PADDED = (aggr.LSTMAggregation, aggr.GRUAggregation, aggr.LCMAggregation, aggr.PatchTransformerAggregation)


def build_aggregation(aggregation: str | Aggregation, features: int) -> Aggregation:
    """Return a new aggregation for a name, the argument itself for an instance.

    Args:
        aggregation: A name in :data:`AGGREGATIONS`; the name of a class of ``torch_geometric.nn.aggr`` that needs no
            arguments, or the widths of its input and output alone; or an instance of any such class.
        features: Width of the messages.

    >>> build_aggregation("median", 8), build_aggregation("MulAggregation", 8)
    (MedianAggregation(), MulAggregation())
    """
    if isinstance(aggregation, Aggregation):
        return aggregation
    if isinstance(aggregation, str) and aggregation not in AGGREGATIONS:
        for name, kind in vars(aggr).items():
            if not isinstance(kind, type) or not issubclass(kind, Aggregation) or kind is Aggregation:
                continue
            if _plain(aggregation) in (_plain(name), _plain(name.removesuffix("Aggregation"))):
                return _build_of_pyg(kind, features)
    return AGGREGATIONS[aggregation](features)


def _build_of_pyg(kind: type[Aggregation], features: int) -> Aggregation:
    needed = [
        name
        for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    widths = ("in_channels", "out_channels", "channels")
    unknown = [name for name in needed if name not in widths]
    if unknown:
        raise ValueError(
            f"{kind.__name__} needs {', '.join(f'`{name}`' for name in unknown)}, which a name cannot give; "
            f"pass an instance: torch_geometric.nn.aggr.{kind.__name__}(...)."
        )
    return kind(**dict.fromkeys(needed, features))


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _index_of(ptr: Tensor | None, rows: int) -> Tensor:
    if ptr is None:
        raise ValueError("an aggregation needs `index` or `ptr`.")
    return torch.repeat_interleave(torch.arange(ptr.shape[0] - 1, device=ptr.device), ptr.diff(), output_size=rows)
