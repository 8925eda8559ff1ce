"""Everything that fixes the architecture of a network, as a frozen value that files can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from phcgnn.configuration import FrozenConfig
from phcgnn.errors import require_divisible, require_positive, require_probability
from phcgnn.nn.activation import ACTIVATIONS
from phcgnn.nn.aggregation import AGGREGATIONS, SCALERS, build_aggregation, require_degrees
from phcgnn.nn.dropout import DropoutKind
from phcgnn.nn.norm import NORMS
from phcgnn.nn.pooling import POOLINGS, build_readout
from phcgnn.nn.start import WEIGHT_STARTS, start_rule

__all__ = ["CUSTOM", "Features", "NodeSource", "PHCGNNConfig", "Skip"]

Features = tuple[int, ...] | int | None
"""A tuple: a number of categories for each integer feature. A number: that many real features. None: there are none."""

Skip = Literal["initial", "previous", "concat"]
NodeSource = Literal["edge-sum", "edge-mean", "constant"]

CUSTOM = "custom"
"""Stands where a network was given an object instead of a name."""

_WHERE = "PHCGNNConfig"
_OBJECTS = ("aggregation", "pooling", "activation", "message_activation", "rule_start", "weight_start")


@dataclass(frozen=True, kw_only=True)
class PHCGNNConfig(FrozenConfig):
    """The architecture of a :class:`~phcgnn.models.PHCGNN`.

    Args:
        node_features: What a node carries: a tuple of category numbers, a number of real features, or None.
        edge_features: What an edge carries, likewise.
        targets: Number of outputs T.
        task: Whether an output belongs to a graph or to a node.
        n: Dimension of the rule; divides every width.
        width: Width k of the node embeddings.
        layers: Number of message-passing layers.
        mp_mlp: Whether the transform of a layer has two PHM layers (the paper's MP-MLP).
        aggregation: A name in :data:`phcgnn.nn.aggregation.AGGREGATIONS`, ``pna``, or one of PyTorch Geometric's.
        aggregators: For ``pna``: names of its aggregators.
        scalers: For ``pna``: names of its scalers.
        degrees: For ``pna``: how many training nodes have 0, 1, 2, ... incoming edges.
        message_activation: Activation of a message before the aggregation.
        skip: ``initial`` adds h(0) after each layer, ``previous`` adds h(l-1), ``concat`` appends h(l-1), so that the
            width grows by k a layer; None adds nothing.
        pooling: A name in :data:`phcgnn.nn.pooling.POOLINGS`, or one of PyTorch Geometric's aggregations.
        downstream: Widths of the predictor's hidden layers.
        dropout: After each message-passing layer; one number, or one a layer.
        downstream_dropout: After each hidden layer of the predictor, likewise.
        dropout_kind: ``unit`` drops all n components of a unit together, ``element`` drops numbers.
        norm: ``component``, ``whitening`` or None.
        activation: A name in :data:`phcgnn.nn.activation.ACTIVATIONS`.
        node_source: Where nodes carry nothing: ``edge-sum`` or ``edge-mean`` takes what their incoming edges carry,
            ``constant`` one learned vector.
        rule_start: What the rules start from, see :class:`~phcgnn.nn.PHMLinear`.
        learn_rule: Whether the rules are learned.
        share_rule: Whether the whole network has one rule.
        weight_start: What the weights start from, see :class:`~phcgnn.nn.PHMLinear`.
        terms: Number of Kronecker products in a PHM layer. (default: ``n``)
        dense: Whether every PHM layer is a plain ``nn.Linear`` instead.

    Files hold ``"none"`` for None, which TOML lacks.

    >>> config = PHCGNNConfig(node_features=(28,), edge_features=(4,), n=5, width=200, layers=4, downstream=(180, 80))
    >>> PHCGNNConfig.from_toml(config.to_toml()) == config
    True
    >>> PHCGNNConfig.from_dict({"node_features": [28], "edge_features": [4], "aggregatoin": "sum"})
    Traceback (most recent call last):
    ValueError: PHCGNNConfig: unknown field 'aggregatoin'. Did you mean 'aggregation'?
    """

    node_features: Features
    edge_features: Features
    targets: int = 1
    task: Literal["graph", "node"] = "graph"
    n: int = 4
    width: int = 200
    layers: int = 2
    mp_mlp: bool = True
    aggregation: str = "sum"
    aggregators: tuple[str, ...] = ("mean", "min", "max", "std")
    scalers: tuple[str, ...] = ("identity", "amplification", "attenuation")
    degrees: tuple[int, ...] | None = None
    message_activation: str | None = None
    skip: Skip | None = "initial"
    pooling: str = "attention"
    downstream: tuple[int, ...] = (128, 32)
    dropout: float | tuple[float, ...] = 0.0
    downstream_dropout: float | tuple[float, ...] = 0.0
    dropout_kind: DropoutKind = "unit"
    norm: str | None = "component"
    activation: str = "relu"
    node_source: NodeSource = "edge-sum"
    rule_start: str = "auto"
    learn_rule: bool = True
    share_rule: bool = False
    weight_start: str = "phm"
    terms: int | None = None
    dense: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_numbers()
        self._check_names()
        self._check_contradictions()

    def to_dict(self) -> dict[str, Any]:
        """Return what a file can hold."""
        for field in _OBJECTS:
            if getattr(self, field) == CUSTOM:
                raise ValueError(
                    f"{_WHERE}: `{field}` was given as an object, which a file cannot hold; "
                    "register it under a name and give the name."
                )
        return super().to_dict()

    def per_layer(self, field: Literal["dropout", "downstream_dropout"]) -> tuple[float, ...]:
        """Return a dropout as one number a layer."""
        value: float | tuple[float, ...] = getattr(self, field)
        count = self.layers if field == "dropout" else len(self.downstream)
        return value if isinstance(value, tuple) else (value,) * count

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Width of h(0), ..., h(layers)."""
        grows = self.skip == "concat"
        return tuple(self.width * (layer + 1 if grows else 1) for layer in range(self.layers + 1))

    def _check_numbers(self) -> None:
        require_positive(_WHERE, n=self.n, layers=self.layers, targets=self.targets)
        require_divisible(_WHERE, self.n, width=self.width)
        for width in self.downstream:
            require_divisible(_WHERE, self.n, downstream=width)
        if self.terms is not None:
            require_positive(_WHERE, terms=self.terms)
        for field, features in (("node_features", self.node_features), ("edge_features", self.edge_features)):
            if features == ():
                raise ValueError(f"{_WHERE}: `{field}` must list at least one feature; None says that there are none.")
            for number in features if isinstance(features, tuple) else () if features is None else (features,):
                require_positive(_WHERE, **{field: number})
        for field, count, of in (("dropout", self.layers, "layers"), ("downstream_dropout", len(self.downstream), "")):
            value = getattr(self, field)
            for p in value if isinstance(value, tuple) else (value,):
                require_probability(_WHERE, **{field: p})
            if isinstance(value, tuple) and len(value) != count:
                raise ValueError(
                    f"{_WHERE}: `{field}` must be one number or one for each of the {count} "
                    f"{of or 'hidden downstream layers'}, got {value}."
                )

    def _check_names(self) -> None:
        for field, registry in (("activation", ACTIVATIONS), ("message_activation", ACTIVATIONS), ("norm", NORMS)):
            value = getattr(self, field)
            if value not in (None, CUSTOM) or (value == CUSTOM and field == "norm"):
                _named(field, registry.__getitem__, value)
        with torch.device("meta"):  # neither memory nor random numbers are spent
            if self.aggregation not in ("pna", CUSTOM):
                _named("aggregation", lambda name: build_aggregation(name, self.n), self.aggregation)
            if self.pooling not in (*POOLINGS, CUSTOM):
                _named("pooling", lambda name: build_readout(name, self.n), self.pooling)
        if self.weight_start != CUSTOM:
            _named("weight_start", WEIGHT_STARTS.__getitem__, self.weight_start)
        if self.rule_start != CUSTOM:
            _named("rule_start", lambda name: start_rule(name, self.n, self.terms or self.n), self.rule_start)
        for field, names, known in (
            ("aggregators", self.aggregators, AGGREGATIONS),
            ("scalers", self.scalers, SCALERS),
        ):
            for name in names:
                _named(field, known.__getitem__, name)

    def _check_contradictions(self) -> None:
        if self.aggregation == "pna" and self.degrees is None:
            raise ValueError(
                f"{_WHERE}: aggregation='pna' needs `degrees`, how many training nodes have 0, 1, 2, ... incoming "
                "edges; torch.bincount of the degrees gives it."
            )
        if self.degrees is not None and self.aggregation == "pna":
            require_degrees(_WHERE, self.degrees)
            for field in ("aggregators", "scalers"):
                if not getattr(self, field):
                    raise ValueError(f"{_WHERE}: `{field}` must name at least one for aggregation='pna', got ().")
        if self.aggregation != "pna" and self.degrees is not None:
            raise ValueError(f"{_WHERE}: `degrees` serves aggregation='pna' alone, got {self.aggregation!r}.")
        if self.aggregation != "pna":
            for field in ("aggregators", "scalers"):
                if getattr(self, field) != type(self).__dataclass_fields__[field].default:
                    raise ValueError(
                        f"{_WHERE}: `{field}` serves aggregation='pna' alone, got {self.aggregation!r}; "
                        "leave it out, or set aggregation='pna'."
                    )
        if self.node_features is not None and self.node_source != "edge-sum":
            raise ValueError(
                f"{_WHERE}: node_source={self.node_source!r} says what stands in for missing node features, but "
                f"node_features={self.node_features}; leave `node_source` out, or set node_features to None."
            )
        if self.node_features is None and self.edge_features is None and self.node_source != "constant":
            raise ValueError(
                f"{_WHERE}: with neither node nor edge features there is nothing to start from; "
                f"set node_source='constant' instead of {self.node_source!r}."
            )
        if self.dense:
            for field in ("share_rule", "learn_rule", "rule_start", "weight_start", "terms"):
                value, plain = getattr(self, field), type(self).__dataclass_fields__[field].default
                if value != plain:
                    raise ValueError(
                        f"{_WHERE}: dense=True has no PHM layers, so `{field}` must stay {plain!r}, got {value!r}."
                    )


def _named(field: str, lookup: Callable[[str], Any], name: str) -> None:
    try:
        lookup(name)
    except ValueError as error:
        raise ValueError(f"{_WHERE}: `{field}`: {error}") from None
