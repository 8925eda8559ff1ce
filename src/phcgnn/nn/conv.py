"""The message-passing layer."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import Aggregation, MeanAggregation, SumAggregation

from phcgnn.errors import ShapeError
from phcgnn.nn.activation import Activation, build_activation
from phcgnn.nn.adjacency import Adjacency, add_rows, require_edges, require_nodes
from phcgnn.nn.affine import Affine
from phcgnn.nn.aggregation import SoftmaxAggregation, build_aggregation, reduce_rows
from phcgnn.nn.block import Block
from phcgnn.nn.eager import is_watched
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.mlp import PHMLP

__all__ = ["PHCConv"]

_MESSAGES = ("gather_neighbours", "message", "aggregate", "update")


class PHCConv(MessagePassing):
    r"""Message passing with a PHM transform, Eq. (12)-(13).

    .. math:: \mathbf{m}_v = \bigoplus_{u \in N(v)} \phi(\mathbf{h}_u + \mathbf{e}_{uv}), \qquad
              \mathbf{h}'_v = \text{PHM}(\mathbf{h}_v + \mathbf{m}_v)

    :math:`\bigoplus` is any aggregation, :math:`\phi` an activation (none by default); with ``mlp`` the transform is
    ``PHM -> norm -> activation -> PHM``. Node v hears u for each edge ``(u, v)`` of ``edge_index``.

    Cost: with sum or mean and no :math:`\phi` the neighbours are summed without a tensor of size edges x width, forward
    and backward; what edges carry is summed apart. Every other aggregation gathers the messages.

    Nodes that do not exist are refused, for which the host waits for a GPU: set ``validate`` to False where the edges
    have been checked already.

    Args:
        in_features (int): Width of the nodes and of the edges' embeddings.
        out_features (int): Width of the output.
        n (int): Dimension of the rule.
        aggregation (str or Aggregation): A name in :data:`phcgnn.nn.aggregation.AGGREGATIONS`, or any
            ``torch_geometric.nn.aggr.Aggregation``.
        mlp (bool): Whether the transform has two PHM layers.
        message_activation (str or callable, optional): :math:`\phi`.
        norm (str or nn.Module, optional): Norm between the two PHM layers.
        activation (str or callable, optional): Activation between them.
        **options: Whatever else :class:`PHMLinear` takes.

    Shapes:
        - **x:** :math:`(V, F_{in})`
        - **edge_index:** :math:`(2, E)`
        - **edge_attr, optional:** :math:`(E, F_{in})`, embedded to the width
        - **output:** :math:`(V, F_{out})`

    >>> conv = PHCConv(8, 12, n=4)
    >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 8)).shape
    torch.Size([3, 12])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n: int = 4,
        *,
        aggregation: str | Aggregation = "sum",
        mlp: bool = True,
        message_activation: str | Activation | None = None,
        norm: str | nn.Module | None = "component",
        activation: str | Activation | None = "relu",
        **options: Unpack[PHMOptions],
    ) -> None:
        aggregator = build_aggregation(aggregation, in_features)
        super().__init__(aggr=aggregator.to(device=options.get("device"), dtype=options.get("dtype")))
        self.in_features, self.out_features, self.n, self.validate = in_features, out_features, n, True
        self.message_activation = build_activation(message_activation)
        self.transform: PHMLP | PHMLinear = (
            PHMLP(in_features, out_features, n, norm=norm, activation=activation, **options)
            if mlp
            else PHMLinear(in_features, out_features, n, **options)
        )

    @property
    def sums(self) -> bool:
        """Whether messages are summed or averaged as they are, so that nodes and edges can be summed apart."""
        return type(self.aggr_module) in (SumAggregation, MeanAggregation) and self._is_usual

    @property
    def weighs(self) -> bool:
        """Whether messages are weighted by a softmax as they are."""
        return type(self.aggr_module) is SoftmaxAggregation and self._is_usual

    @property
    def _is_usual(self) -> bool:
        """Whether messages are what the formula says, not what a subclass says, and nobody watches them."""
        watched = self.explain or self._message_forward_hooks or self._propagate_forward_hooks
        watched = watched or self._message_forward_pre_hooks or self._propagate_forward_pre_hooks
        watched = watched or self._aggregate_forward_hooks or self._aggregate_forward_pre_hooks
        watched = watched or is_watched(self.aggr_module, self.message_activation)
        return isinstance(self.message_activation, nn.Identity) and not watched and self._inherits(*_MESSAGES)

    @property
    def adds(self) -> bool:
        """Whether a node is added to what :attr:`sums` gives, as it is, so that one sum may have both."""
        return self.sums and self._inherits("sum_neighbours", "combine")

    @property
    def is_chain(self) -> bool:
        """Whether nodes are transformed by blocks and a last linear layer, as they are and seen by nobody."""
        usual = type(self.transform) in (PHMLP, PHMLinear, Affine) and not is_watched(self.transform)
        return usual and self._inherits("combine", "transform_nodes")

    @property
    def blocks_before(self) -> list[Block]:
        """The blocks of the transform before its last linear layer."""
        transform = self.transform
        return [transform.hidden] if isinstance(transform, PHMLP) else []

    @property
    def last_linear(self) -> nn.Module:
        """The last linear layer of the transform."""
        return self.transform.linear2 if isinstance(self.transform, PHMLP) else self.transform

    def _inherits(self, *methods: str) -> bool:
        return all(getattr(getattr(self, name), "__func__", None) is getattr(PHCConv, name) for name in methods)

    def reset_parameters(self) -> None:
        """Start the aggregation and the transform anew."""
        self.aggr_module.reset_parameters()
        self.transform.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Apply the layer."""
        self._require_shapes(x, edge_index, edge_attr)
        if self.sums:
            adjacency = Adjacency.from_edges(edge_index, x.shape[0])
            edges = None if edge_attr is None else add_rows(edge_attr.to(x), edge_index[1], x.shape[0])
            return self.combine(x, self.sum_neighbours(x, adjacency, edges))
        return self.combine(x, self.gather_neighbours(x, edge_index, edge_attr))

    def sum_neighbours(self, x: Tensor, adjacency: Adjacency, edges: Tensor | None) -> Tensor:
        """Return the messages' sum or mean, given the sum of the embeddings of each node's edges, where :attr:`sums`.

        Shapes:
            - **x, edges, output:** :math:`(V, F_{in})`
        """
        received = adjacency.sum(x)
        if edges is not None:
            received = received + edges
        if isinstance(self.aggr_module, MeanAggregation):
            received = received / adjacency.degree.clamp_min(1)[:, None].to(received.dtype)
        return received

    def gather_neighbours(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        """Return the aggregated messages, whatever the aggregation; a node that hears nobody receives zero.

        (With ``pna`` it receives the bias of the projection.)

        Shapes:
            - **x, output:** :math:`(V, F_{in})`
            - **edge_attr:** :math:`(E, F_{in})`
        """
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, size=(x.shape[0], x.shape[0]))

    def message(self, x_j: Tensor, edge_attr: Tensor | None) -> Tensor:  # (E, F_in), (E, F_in) -> (E, F_in)
        """Return what an edge carries."""
        return self.message_activation(x_j if edge_attr is None else x_j + edge_attr)

    def aggregate(
        self, inputs: Tensor, index: Tensor, ptr: Tensor | None = None, dim_size: int | None = None
    ) -> Tensor:
        """Aggregate the messages (E, F_in) at their targets, (V, F_in)."""
        assert dim_size is not None
        return reduce_rows(self.aggr_module, inputs, index, dim_size, ptr)

    def combine(self, x: Tensor, received: Tensor, mask: Tensor | None = None) -> Tensor:
        """Add what was received to what was there and transform it.

        Shapes:
            - **x, received:** :math:`(V, F_{in})`
            - **mask, optional:** :math:`(V,)`, boolean: the nodes that a norm counts
            - **output:** :math:`(V, F_{out})`
        """
        return self.transform_nodes(self.add_received(x, received), mask)

    def add_received(self, x: Tensor, received: Tensor) -> Tensor:
        """Add what was received to what was there, ``(V, F_in)`` both."""
        if received.shape != x.shape:
            raise ShapeError(
                f"PHCConv: the output of {self.aggr_module}",
                got=received.shape,
                expected=x.shape,
                hint="the aggregation must keep the width",
            )
        return x + received

    def transform_nodes(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        """Transform nodes to which what they received has been added."""
        return self.transform(h, mask) if isinstance(self.transform, PHMLP) else self.transform(h)

    def _require_shapes(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> None:
        if x.dim() != 2 or x.shape[1] != self.in_features:
            raise ShapeError("PHCConv: `x`", got=x.shape, expected=("V", self.in_features))
        require_edges("PHCConv", edge_index)
        if edge_attr is not None and edge_attr.shape != (edge_index.shape[1], self.in_features):
            raise ShapeError(
                "PHCConv: `edge_attr`",
                got=edge_attr.shape,
                expected=(edge_index.shape[1], self.in_features),
                hint="embed the edges' features to the width first, e.g. by CategoricalEncoder or ContinuousEncoder",
            )
        if self.validate and not torch.compiler.is_compiling():
            require_nodes("PHCConv", edge_index, x.shape[0])

    def __repr__(self) -> str:
        return nn.Module.__repr__(self)

    def extra_repr(self) -> str:
        """Describe the layer for ``repr``."""
        return f"{self.in_features}, {self.out_features}, n={self.n}"
