"""The network of the paper."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, cast, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.aggr import Aggregation, SumAggregation

from phcgnn.algebra import Algebra
from phcgnn.models.config import CUSTOM, Features, NodeSource, PHCGNNConfig, Skip
from phcgnn.models.edges import EdgeBatch, EdgeEncoder
from phcgnn.models.inputs import GraphInputs, check_inputs, read_batch
from phcgnn.models.predictor import Predictor
from phcgnn.models.summary import Summary, summarize
from phcgnn.models.weighing import weigh_neighbours
from phcgnn.nn.activation import Activation, build_activation
from phcgnn.nn.affine import Affine, fill_up, uses_onednn
from phcgnn.nn.aggregation import PNAAggregation, reduce_rows
from phcgnn.nn.block import Block, apply_blocks
from phcgnn.nn.conv import PHCConv
from phcgnn.nn.dropout import ComponentDropout, DropoutKind
from phcgnn.nn.eager import plain_on_cpu
from phcgnn.nn.encoder import CategoricalEncoder, ContinuousEncoder
from phcgnn.nn.kernels.switch import takes
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.norm import build_norm, normalise
from phcgnn.nn.pooling import SoftAttentionPooling, build_pooling
from phcgnn.nn.rule import MultiplicationRule
from phcgnn.nn.softmax import softmax_of_sorted
from phcgnn.nn.start import WeightStart

__all__ = ["PHCGNN", "PHCGNNOptions"]

T = TypeVar("T")


class PHCGNNOptions(TypedDict, total=False):
    """The fields of :class:`PHCGNNConfig`; an object works where a name does."""

    node_features: Features
    edge_features: Features
    targets: int
    task: Literal["graph", "node"]
    n: int
    width: int
    layers: int
    mp_mlp: bool
    aggregation: str | Aggregation
    aggregators: tuple[str, ...]
    scalers: tuple[str, ...]
    degrees: tuple[int, ...] | None
    message_activation: str | Activation | None
    skip: Skip | None
    pooling: str | Aggregation
    downstream: tuple[int, ...]
    dropout: float | tuple[float, ...]
    downstream_dropout: float | tuple[float, ...]
    dropout_kind: DropoutKind
    norm: str | None
    activation: str | Activation
    node_source: NodeSource
    rule_start: str | Algebra
    learn_rule: bool
    share_rule: bool
    weight_start: str | WeightStart
    terms: int | None
    dense: bool


class PHCGNN(nn.Module):
    r"""Parameterized hypercomplex graph neural network.

    .. math::
        \mathbf{h}^{(0)}_v &= \text{encoder}(\mathbf{x}_v) \\
        \mathbf{t}^{(l)}_v &= \text{PHM}\Big(\mathbf{h}^{(l-1)}_v +
            \bigoplus_{u \in N(v)} \big(\mathbf{h}^{(l-1)}_u + \mathbf{e}^{(l)}_{uv}\big)\Big) \\
        \mathbf{h}^{(l)}_v &= \text{dropout}(\text{activation}(\text{norm}(\mathbf{t}^{(l)}_v))) + \text{skip} \\
        \hat{\mathbf{y}}_G &= \text{predictor}\Big(\sum_{v \in G} \mathbf{g}_v \odot \mathbf{h}^{(L)}_v\Big)

    A node task predicts from :math:`\mathbf{h}^{(L)}_v` instead of the pooled graph. With ``n=1`` this is the paper's
    PHC-1; with ``dense=True`` every PHM layer is an ``nn.Linear`` with torch's start (its subclass ``Affine``, which
    multiplies as PHM layers do, so that comparisons are fair).

    Values are checked before they index anything, for which the host waits for the device once a forward: set
    ``validate`` to False where the data has been checked already.

    The ghosts of a padded batch of a :class:`~phcgnn.data.GraphStore` change nothing: norms leave them out, and what is
    predicted for them is to be ignored.

    Args:
        **options: The fields of :class:`~phcgnn.models.PHCGNNConfig`. Where it holds a name, an object works too: an
            ``Aggregation`` (each layer gets a copy of its own, started anew), a readout, an activation, an ``Algebra``.
        device: Where the parameters live.
        dtype: Their type.

    Shapes:
        - **input:** a PyG ``Batch`` or ``Data``; or ``x`` :math:`(V, F_{node})`, ``edge_index`` :math:`(2, E)`,
          ``edge_attr`` :math:`(E, F_{edge})` or None, ``ptr`` :math:`(G + 1,)`
        - **output:** :math:`(G, T)`, or :math:`(V, T)` for a node task

    >>> model = PHCGNN(node_features=(28,), edge_features=(4,), n=5, width=200, layers=4, downstream=(180, 80))
    >>> model.num_parameters()
    106291
    >>> x, edge_attr = torch.tensor([[0], [5], [2]]), torch.tensor([[1], [1]])
    >>> model.eval()(x, torch.tensor([[0, 1], [1, 0]]), edge_attr, ptr=torch.tensor([0, 2, 3])).shape
    torch.Size([2, 1])
    """

    fills_up = False
    """Whether nodes that are in no graph fill a batch up on the CPU, for oneDNN; in networks for prediction."""

    def __init__(
        self,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[PHCGNNOptions],
    ) -> None:
        super().__init__()
        given = _objects(options)
        config = PHCGNNConfig.from_dict({**options, **dict.fromkeys(given, CUSTOM)})
        for field in given.keys() ^ {f for f in config.fields() if getattr(config, f) == CUSTOM}:
            raise ValueError(f"PHCGNN: `{field}` is {CUSTOM!r}, which stands for an object; give the object.")
        self.config, self.validate = config, True
        self.update: Callable[..., Tensor] = update_nodes
        self._given = given
        rule_start = cast("str | Algebra", given.get("rule_start", config.rule_start))
        weight_start = cast("str | WeightStart", given.get("weight_start", config.weight_start))
        phm: PHMOptions = {"weight_start": weight_start, "terms": config.terms, "device": device, "dtype": dtype}
        self.rule: MultiplicationRule | None = None
        if config.share_rule:
            self.rule = MultiplicationRule.from_start(
                rule_start, config.n, config.terms, config.learn_rule, device=device, dtype=dtype
            )
            phm["rule"] = self.rule
        else:
            phm |= {"rule_start": rule_start, "learn_rule": config.learn_rule}
        self._build(phm)
        if config.dense:
            _to_plain_linear(self)

    @classmethod
    def from_config(
        cls,
        config: PHCGNNConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Build from a config."""
        values = {field: getattr(config, field) for field in config.fields()}
        return cls(**cast(PHCGNNOptions, values), device=device, dtype=dtype)

    def _build(self, phm: PHMOptions) -> None:
        config, widths = self.config, self.config.layer_widths
        place = {"device": phm.get("device"), "dtype": phm.get("dtype")}
        from_edges = config.node_features is None and config.node_source != "constant"
        node_features = config.edge_features if from_edges else config.node_features or (1,)
        self.node_encoder = _encoder(node_features, config.width, place)
        self.edge_encoders = nn.ModuleList()
        self.convs, self.norms, self.activations, self.dropouts = (nn.ModuleList() for _ in range(4))
        for layer, p in enumerate(config.per_layer("dropout")):
            if config.edge_features is not None:
                self.edge_encoders.append(_encoder(config.edge_features, widths[layer], place))
            self.convs.append(self._build_conv(widths[layer], phm))
            self.norms.append(build_norm(config.norm, config.width, config.n, **place))  # type: ignore[arg-type]
            self.activations.append(_module(build_activation(self._object("activation"))))
            self.dropouts.append(ComponentDropout(p, config.n, kind=config.dropout_kind))
        self.pool: Aggregation | None = None
        features = widths[-1]
        if config.task == "graph":
            self.pool = build_pooling(cast(Any, self._object("pooling")), features, config.n, **phm)
            self.pool.to(**place)
            features = _pooled_width(self.pool, features)
        self.predictor = Predictor(
            features,
            config.downstream,
            config.targets,
            config.n,
            dropout=config.per_layer("downstream_dropout"),
            dropout_kind=config.dropout_kind,
            norm=config.norm,
            activation=self._object("activation"),
            **phm,
        )

    def _build_conv(self, width: int, phm: PHMOptions) -> PHCConv:
        config = self.config
        aggregation = self._object("aggregation")
        if aggregation == "pna":
            assert config.degrees is not None
            aggregation = PNAAggregation(
                width,
                config.n,
                degrees=config.degrees,
                aggregators=config.aggregators,
                scalers=config.scalers,
                **phm,
            )
        elif isinstance(aggregation, Aggregation):
            aggregation.reset_parameters()
        return PHCConv(
            width,
            config.width,
            config.n,
            aggregation=aggregation,
            mlp=config.mp_mlp,
            message_activation=self._object("message_activation"),
            norm=config.norm,
            activation=self._object("activation"),
            **phm,
        )

    def _object(self, field: str) -> Any:
        """Return the name in the config, or a copy of the object that was given for it (a readout: itself)."""
        value = self._given.get(field, getattr(self.config, field))
        return copy.deepcopy(value) if isinstance(value, nn.Module) and field != "pooling" else value

    def reset_parameters(self) -> None:
        """Start everything anew."""
        if self.rule is not None:
            self.rule.reset_parameters()
        parts: list[nn.Module | None] = [self.node_encoder, *self.edge_encoders, *self.convs, *self.norms]
        for part in [*parts, *self.activations, self.pool, self.predictor]:
            reset = getattr(part, "reset_parameters", None)
            if reset is not None:
                reset()

    @overload
    def forward(self, batch: Tensor, edge_index: Tensor, edge_attr: Tensor | None, ptr: Tensor) -> Tensor: ...
    @overload
    def forward(self, batch: Any) -> Tensor: ...
    def forward(
        self,
        batch: Any,
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        ptr: Tensor | None = None,
    ) -> Tensor:
        """Predict, from a batch or from its tensors ``(x, edge_index, edge_attr, ptr)``."""
        inputs = self._read(batch, edge_index, edge_attr, ptr)
        h = self._embed(inputs)
        if self.pool is None:
            return self.predictor(h, inputs.node_mask)
        return self.predictor(self._pool(h, inputs.ptr), inputs.graph_mask)

    def node_embeddings(
        self,
        batch: Any,
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        ptr: Tensor | None = None,
    ) -> Tensor:
        """Return the nodes after the last layer, ``(V, k)``."""
        return self._embed(self._read(batch, edge_index, edge_attr, ptr))

    def graph_embeddings(
        self,
        batch: Any,
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        ptr: Tensor | None = None,
    ) -> Tensor:
        """Return the pooled graphs, ``(G, k)``."""
        inputs = self._read(batch, edge_index, edge_attr, ptr)
        return self._pool(self._embed(inputs), inputs.ptr)

    def attention_gates(
        self,
        batch: Any,
        edge_index: Tensor | None = None,
        edge_attr: Tensor | None = None,
        ptr: Tensor | None = None,
    ) -> Tensor:
        """Return the gate of each node and feature, ``(V, k/n)``.

        Those of an ordinary forward are kept in ``model.pool.last_gates`` after ``model.pool.keep_gates = True``.
        """
        if not isinstance(self.pool, SoftAttentionPooling):
            raise ValueError(f"PHCGNN: gates come with pooling='attention', this network has {self.pool!r}.")
        return self.pool.gates(self._embed(self._read(batch, edge_index, edge_attr, ptr)))

    def _read(self, batch: Any, edge_index: Tensor | None, edge_attr: Tensor | None, ptr: Tensor | None) -> GraphInputs:
        if isinstance(batch, Tensor):
            if edge_index is None or ptr is None:
                raise TypeError("PHCGNN: given tensors, it needs `x`, `edge_index`, `edge_attr` (or None) and `ptr`.")
            inputs = GraphInputs(batch, edge_index, edge_attr, ptr)
        else:
            inputs = read_batch(batch)
        check_inputs(inputs, self.config.node_features, self.config.edge_features, self.validate)
        return inputs

    def _embed(self, inputs: GraphInputs) -> Tensor:
        x, mask, rowptr = inputs.x, inputs.node_mask, inputs.rowptr
        nodes = x.shape[0]
        filled = self.fills_up and mask is None and plain_on_cpu(x) and uses_onednn()
        if filled:
            x, rowptr = F.pad(x, (*(0, 0) * (x.dim() - 1), 0, fill_up(nodes) - nodes)), None
        edges = EdgeBatch(inputs.edge_index, inputs.edge_attr, x.shape[0], rowptr)
        skip = self.config.skip
        start = self._encode_nodes(x, edges)
        h = start.view_as(start)  # a tensor of its own, so that the first layer is compiled as the others are
        for layer, conv in enumerate(self.convs):
            parts = conv, self.norms[layer], self.activations[layer], self.dropouts[layer]
            own, received = self._gather(cast(PHCConv, conv), layer, h, edges)
            h = self.update(*parts, own, received, start if skip == "initial" else h, mask, skip)
        return h[:nodes] if filled else h

    def _encode_nodes(self, x: Tensor, edges: EdgeBatch) -> Tensor:
        config = self.config
        encoder = self.node_encoder
        if config.node_features is not None:
            return encoder(x)
        if config.node_source == "constant":
            return encoder(edges.edge_index.new_zeros(x.shape[0], 1))
        own = EdgeBatch(edges.edge_index, edges.edge_attr, x.shape[0], edges.rowptr)
        h = own.sum_embeddings(encoder)
        if config.node_source == "edge-mean":
            h = h / own.adjacency.degree.clamp_min(1).to(h.dtype)[:, None]
        return h

    def _gather(self, conv: PHCConv, layer: int, h: Tensor, edges: EdgeBatch) -> tuple[Tensor, Tensor | None]:
        """Return the nodes and what they received; on the CPU, where one sum has both, that sum and None."""
        encoder = cast(EdgeEncoder, self.edge_encoders[layer]) if len(self.edge_encoders) else None
        if edges.on_host and h.dtype in (torch.float32, torch.float64) and plain_on_cpu(h):
            if type(conv.aggr_module) is SumAggregation and conv.adds:
                return edges.sum_with_own(h, encoder), None
            if conv.weighs:
                messages, beta = edges.messages(h, encoder), cast(Tensor, conv.aggr_module.beta)
                return h, softmax_of_sorted(messages, beta, edges.adjacency)
        return h, self._receive(conv, encoder, h, edges)

    def _receive(self, conv: PHCConv, encoder: EdgeEncoder | None, h: Tensor, edges: EdgeBatch) -> Tensor:
        if conv.sums:
            embedded = None if encoder is None else edges.sum_embeddings(encoder)
            return conv.sum_neighbours(h, edges.adjacency, embedded)
        if conv.weighs:
            beta = cast(Tensor, conv.aggr_module.beta)
            if takes(h, beta, *(() if encoder is None else encoder.parameters())):
                return weigh_neighbours(h, beta, encoder, edges)
        embedded = None if encoder is None else encoder(cast(Tensor, edges.edge_attr))
        return conv.gather_neighbours(h, edges.edge_index, embedded)

    def _pool(self, h: Tensor, ptr: Tensor) -> Tensor:
        if self.pool is None:
            raise ValueError("PHCGNN: a network for a node task has no pooling.")
        graphs = ptr.shape[0] - 1
        names = torch.arange(graphs, device=h.device)
        index = torch.repeat_interleave(names, ptr.diff(), output_size=h.shape[0])
        return reduce_rows(self.pool, h, index, graphs, ptr)

    def num_parameters(self, learnable: bool = True) -> int:
        """Count the parameters; a shared rule counts once, a frozen rule not at all unless ``learnable`` is False."""
        count = sum(p.numel() for p in self.parameters() if p.requires_grad or not learnable)
        rules = {id(m.constants): m.constants for m in self.modules() if isinstance(m, MultiplicationRule)}
        return count + sum(0 if learnable or isinstance(c, nn.Parameter) else c.numel() for c in rules.values())

    def summary(self) -> Summary:
        """Return the table of the network's parts, for ``print`` or rich."""
        return summarize(self)

    def extra_repr(self) -> str:
        """Describe the network for ``repr``."""
        return f"n={self.config.n}, width={self.config.width}, layers={self.config.layers}, task={self.config.task}"


def update_nodes(
    conv: PHCConv,
    norm: nn.Module,
    activation: nn.Module,
    dropout: nn.Module,
    h: Tensor,
    received: Tensor | None,
    skipped: Tensor,
    mask: Tensor | None,
    skip: Skip | None,
) -> Tensor:
    """Return the nodes after a layer, given what they were, what they received and what skips the layer.

    Without ``received``, ``h`` has it in it already.

    A function of modules and tensors, so that one compilation of it serves all layers.
    """
    if mask is None and plain_on_cpu(h) and conv.is_chain:
        h = h if received is None else conv.add_received(h, received)
        blocks: list[Block] = [*conv.blocks_before, (conv.last_linear, norm, activation, dropout)]
        if skip in ("initial", "previous"):
            return apply_blocks(h, blocks, skipped=skipped)
        t = apply_blocks(h, blocks)
    else:
        t = conv.transform_nodes(h, mask) if received is None else conv.combine(h, received, mask)
        t = dropout(activation(normalise(norm, t, mask)))
    if skip is None:
        return t
    if skip == "concat":  # component p of the result is component p of t and of h
        return torch.cat([t.unflatten(-1, (conv.n, -1)), skipped.unflatten(-1, (conv.n, -1))], dim=-1).flatten(-2)
    return t + skipped


def _objects(options: PHCGNNOptions) -> dict[str, Any]:
    """Return what was given as an object where a config holds a name."""
    fields = ("aggregation", "pooling", "activation", "message_activation", "rule_start", "weight_start")
    values = {field: options.get(field) for field in fields}
    return {field: value for field, value in values.items() if value is not None and not isinstance(value, str)}


def _encoder(features: Features, width: int, place: Any) -> EdgeEncoder:
    if isinstance(features, tuple):
        encoder = CategoricalEncoder(features, width, **place)
        encoder.validate = False  # the network has checked, and says what it was
        return encoder
    assert features is not None
    return ContinuousEncoder(features, width, **place)


class _Function(nn.Module):
    """A plain function where a module is wanted."""

    def __init__(self, function: Activation) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _module(activation: Activation) -> nn.Module:
    return activation if isinstance(activation, nn.Module) else _Function(activation)


def _pooled_width(pool: Aggregation, features: int) -> int:
    if isinstance(pool, SoftAttentionPooling):
        return features
    probe = copy.deepcopy(pool).eval()
    if any(parameter.is_meta for parameter in probe.parameters()):
        probe = probe.to_empty(device="cpu")  # whatever it holds: the width alone is wanted
    parameter = next(probe.parameters(), None)
    with torch.no_grad(), torch.device("cpu"):
        example = torch.zeros(2, features) if parameter is None else parameter.new_zeros(2, features)
        index = torch.zeros(2, dtype=torch.long, device=example.device)
        return int(probe(example, index, dim_size=1).shape[-1])


def _to_plain_linear(module: nn.Module) -> None:
    """Put an ``nn.Linear`` of its own start in the place of every PHM layer."""
    for name, child in module.named_children():
        if isinstance(child, PHMLinear):
            weight, bias = child.weight, child.bias is not None
            plain = Affine(child.in_features, child.out_features, bias, weight.device, weight.dtype)
            setattr(module, name, plain)
        else:
            _to_plain_linear(child)
