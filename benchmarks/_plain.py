"""The network of the paper as it is usually written with PyTorch Geometric: what ``benchmarks/step.py`` compares with.

One ``nn.Embedding`` a feature, messages of size edges x width by ``MessagePassing``, one ``BatchNorm1d`` a component,
every weight built in every forward as a sum of ``torch.kron``. It covers what the benchmark needs: categorical
features, sum or softmax aggregation, the two-layer transform, attention pooling. :func:`copy_weights` brings the
weights of a :class:`~phcgnn.models.PHCGNN` over, so that both can be compared before they are timed; and :func:`folded`
gives the same network with every weight built once, for predictions.
"""

from __future__ import annotations

import copy
import itertools
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import MessagePassing, global_add_pool
from torch_geometric.nn.aggr import SoftmaxAggregation

from phcgnn.models import PHCGNN, PHCGNNConfig
from phcgnn.nn import CategoricalEncoder, PHCNorm, PHMLinear

__all__ = ["PlainNetwork", "copy_weights", "folded"]


class KroneckerLinear(nn.Module):
    """A PHM layer: the weight is a sum of Kronecker products, built in every forward."""

    def __init__(self, in_features: int, out_features: int, n: int) -> None:
        super().__init__()
        self.constants = nn.Parameter(torch.randn(n, n, n))
        self.weight = nn.Parameter(torch.randn(n, out_features // n, in_features // n))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return F.linear(x, self.dense_weight(), self.bias)

    def dense_weight(self) -> Tensor:
        """Build the weight."""
        products = [torch.kron(c, w) for c, w in zip(self.constants, self.weight, strict=True)]
        return torch.stack(products).sum(0)


class ComponentNorms(nn.Module):
    """One batch norm a component."""

    def __init__(self, features: int, n: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(features // n) for _ in range(n))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each component."""
        parts = x.chunk(len(self.norms), dim=1)
        return torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)], dim=1)


class UnitDropout(nn.Module):
    """Dropout that zeroes a unit with all its components."""

    def __init__(self, p: float, n: int) -> None:
        super().__init__()
        self.p, self.n = p, n

    def forward(self, x: Tensor) -> Tensor:
        """Drop units."""
        if not self.training or self.p == 0:
            return x
        mask = F.dropout(torch.ones(x.shape[0], x.shape[1] // self.n, device=x.device), self.p)
        return x * mask.repeat(1, self.n)


class Embeddings(nn.Module):
    """The sum of one embedding a feature."""

    def __init__(self, cardinalities: tuple[int, ...], features: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(count, features) for count in cardinalities)

    def forward(self, x: Tensor) -> Tensor:
        """Look up and add."""
        total = self.tables[0](x[:, 0])
        for column, table in enumerate(self.tables[1:], start=1):
            total = total + table(x[:, column])
        return total


class Convolution(MessagePassing):
    """Messages ``h_u + e_uv``, then ``PHM -> norm -> ReLU -> PHM``."""

    def __init__(self, width: int, n: int, aggregation: str) -> None:
        super().__init__(aggr=SoftmaxAggregation(learn=True) if aggregation == "softmax" else aggregation)
        self.linear1, self.norm = KroneckerLinear(width, width, n), ComponentNorms(width, n)
        self.linear2 = KroneckerLinear(width, width, n)

    def forward(self, h: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Apply the layer."""
        t = h + self.propagate(edge_index, x=h, edge_attr=edge_attr)
        return self.linear2(F.relu(self.norm(self.linear1(t))))

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """Add the edge to the neighbour."""
        return x_j + edge_attr


class PlainNetwork(nn.Module):
    """The network, from the same config as :class:`~phcgnn.models.PHCGNN`."""

    def __init__(self, config: PHCGNNConfig) -> None:
        super().__init__()
        n, width = config.n, config.width
        nodes, edges = config.node_features, config.edge_features
        if not isinstance(nodes, tuple) or not isinstance(edges, tuple) or not config.mp_mlp:
            raise ValueError("PlainNetwork is for categorical features and mp_mlp=True alone.")
        self.config = config
        self.node_encoder = Embeddings(nodes, width)
        self.edge_encoders = nn.ModuleList(Embeddings(edges, width) for _ in range(config.layers))
        self.convs = nn.ModuleList(Convolution(width, n, config.aggregation) for _ in range(config.layers))
        self.norms = nn.ModuleList(ComponentNorms(width, n) for _ in range(config.layers))
        self.dropouts = nn.ModuleList(UnitDropout(p, n) for p in config.per_layer("dropout"))
        self.gate, self.real_gate = KroneckerLinear(width, width, n), nn.Linear(width, width // n)
        widths = (width, *config.downstream)
        self.linears = nn.ModuleList(KroneckerLinear(a, b, n) for a, b in itertools.pairwise(widths))
        self.head_norms = nn.ModuleList(ComponentNorms(b, n) for b in config.downstream)
        self.head_dropouts = nn.ModuleList(UnitDropout(p, n) for p in config.per_layer("downstream_dropout"))
        self.last = KroneckerLinear(widths[-1], n * config.targets, n)
        self.real = nn.Linear(n * config.targets, config.targets)

    def forward(self, batch: Batch) -> Tensor:
        """Predict."""
        h = start = self.node_encoder(batch.x)
        layers = zip(self.edge_encoders, self.convs, self.norms, self.dropouts, strict=True)
        for encoder, conv, norm, dropout in layers:
            t = dropout(F.relu(norm(conv(h, batch.edge_index, encoder(batch.edge_attr)))))
            h = t + (start if self.config.skip == "initial" else h)
        gates = torch.sigmoid(self.real_gate(self.gate(h)))
        h = global_add_pool(h * gates.repeat(1, self.config.n), batch.batch, batch.num_graphs)
        for linear, norm, dropout in zip(self.linears, self.head_norms, self.head_dropouts, strict=True):
            h = dropout(F.relu(norm(linear(h))))
        return self.real(self.last(h))

    def weight_penalty(self) -> Tensor:
        """Return the penalty of Eq. (9)."""
        layers = [module for module in self.modules() if isinstance(module, KroneckerLinear)]
        return torch.stack([layer.weight.norm(dim=0).mean() for layer in layers]).sum()


@torch.no_grad()
def folded(plain: PlainNetwork) -> PlainNetwork:
    """Return a copy with an ``nn.Linear`` in the place of each PHM layer, its weight built once."""
    new = copy.deepcopy(plain)
    for module in list(new.modules()):
        for name, child in module.named_children():
            if isinstance(child, KroneckerLinear):
                weight = child.dense_weight()
                linear = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device, dtype=weight.dtype)
                linear.weight.copy_(weight)
                linear.bias.copy_(child.bias)
                module._modules[name] = linear
    return new.eval()


@torch.no_grad()
def copy_weights(model: PHCGNN, plain: PlainNetwork) -> None:
    """Give the plain network the parameters and statistics of ours."""
    _embeddings(model.node_encoder, plain.node_encoder)
    for own, other in zip(model.edge_encoders, plain.edge_encoders, strict=True):
        _embeddings(own, cast(Embeddings, other))
    for conv, other in zip(model.convs, plain.convs, strict=True):
        _linear(conv.transform.linear1, other.linear1)  # type: ignore[union-attr, arg-type]
        _linear(conv.transform.linear2, other.linear2)  # type: ignore[union-attr, arg-type]
        _norm(conv.transform.norm, other.norm)  # type: ignore[arg-type]
        if model.config.aggregation == "softmax":
            other.aggr_module.t.fill_(conv.aggr_module.beta)  # type: ignore[union-attr, operator, arg-type]
    head = model.predictor
    pairs = [*zip(model.norms, plain.norms, strict=True), *zip(head.norms, plain.head_norms, strict=True)]
    for own, other in pairs:
        _norm(own, cast(ComponentNorms, other))
    assert model.pool is not None
    _linear(model.pool.linear, plain.gate)
    plain.real_gate.load_state_dict(model.pool.real.affine.state_dict())
    for own, other in zip([*head.linears, head.last], [*plain.linears, plain.last], strict=True):
        _linear(own, cast(KroneckerLinear, other))
    assert head.real.affine is not None
    plain.real.load_state_dict(head.real.affine.state_dict())


def _linear(own: nn.Module, other: KroneckerLinear) -> None:
    assert isinstance(own, PHMLinear)
    assert own.bias is not None
    other.constants.copy_(own.rule.constants)
    other.weight.copy_(own.weight)
    other.bias.copy_(own.bias)


def _norm(own: nn.Module, other: ComponentNorms) -> None:
    assert isinstance(own, PHCNorm)
    for name in ("weight", "bias", "running_mean", "running_var"):
        parts = getattr(own, name).chunk(len(other.norms))
        for norm, part in zip(other.norms, parts, strict=True):
            getattr(norm, name).copy_(part)


def _embeddings(own: nn.Module, other: Embeddings) -> None:
    assert isinstance(own, CategoricalEncoder)
    for table, rows in zip(other.tables, own.weight.split(own.cardinalities), strict=True):
        cast(nn.Embedding, table).weight.copy_(rows)
