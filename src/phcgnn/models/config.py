"""Everything that fixes the architecture of a network, as a frozen value that files can hold."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch

from phcgnn.errors import require_divisible, require_positive, require_probability
from phcgnn.nn.activation import ACTIVATIONS
from phcgnn.nn.aggregation import AGGREGATIONS, SCALERS, build_aggregation
from phcgnn.nn.dropout import DropoutKind
from phcgnn.nn.norm import NORMS
from phcgnn.nn.pooling import POOLINGS
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
class PHCGNNConfig:
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
        for field, kind in typing.get_type_hints(type(self)).items():
            value = getattr(self, field)
            if not _fits(value, kind):
                raise TypeError(f"{_WHERE}: `{field}` must be {_describe(kind)}, got {value!r}.")
        self._check_numbers()
        self._check_names()
        self._check_contradictions()

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """Return the names of all fields."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from what a file holds: lists for tuples, ``"none"`` for None; unknown fields are refused."""
        hints = typing.get_type_hints(cls)
        read: dict[str, Any] = {}
        for field, value in values.items():
            if field not in hints:
                close = difflib.get_close_matches(field, hints, n=1)
                hint = f" Did you mean '{close[0]}'?" if close else f" Choose from {', '.join(cls.fields())}."
                raise ValueError(f"{_WHERE}: unknown field '{field}'.{hint}")
            value = tuple(value) if isinstance(value, list) else value
            read[field] = None if value == "none" and _fits(None, hints[field]) else value
        missing = [
            field.name
            for field in dataclasses.fields(cls)
            if field.default is dataclasses.MISSING and field.name not in read
        ]
        if missing:
            raise ValueError(f"{_WHERE}: {' and '.join(f'`{name}`' for name in missing)} must be given.")
        return cls(**read)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read JSON."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read TOML."""
        return cls.from_dict(tomllib.loads(text))

    def to_dict(self) -> dict[str, Any]:
        """Return what a file can hold."""
        values = dataclasses.asdict(self)
        for field, value in values.items():
            if value == CUSTOM and field in _OBJECTS:
                raise ValueError(
                    f"{_WHERE}: `{field}` was given as an object, which a file cannot hold; "
                    "register it under a name and give the name."
                )
        return {field: _write(value) for field, value in values.items()}

    def to_json(self) -> str:
        """Write JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_toml(self) -> str:
        """Write TOML."""
        return "".join(f"{field} = {json.dumps(value)}\n" for field, value in self.to_dict().items())

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
                _named("pooling", lambda name: build_aggregation(name, self.n), self.pooling)
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
        if self.aggregation != "pna" and self.degrees is not None:
            raise ValueError(f"{_WHERE}: `degrees` serves aggregation='pna' alone, got {self.aggregation!r}.")
        if self.node_features is None and self.edge_features is None and self.node_source != "constant":
            raise ValueError(
                f"{_WHERE}: with neither node nor edge features there is nothing to start from; "
                f"set node_source='constant' instead of {self.node_source!r}."
            )
        if self.dense:
            for field, plain in (("share_rule", False), ("learn_rule", True), ("rule_start", "auto"), ("terms", None)):
                if getattr(self, field) != plain:
                    raise ValueError(
                        f"{_WHERE}: dense=True has no rules, so `{field}` must stay {plain!r}, "
                        f"got {getattr(self, field)!r}."
                    )


def _named(field: str, lookup: typing.Callable[[str], Any], name: str) -> None:
    try:
        lookup(name)
    except ValueError as error:
        raise ValueError(f"{_WHERE}: `{field}`: {error}") from None


def _write(value: Any) -> Any:
    if value is None:
        return "none"
    return list(value) if isinstance(value, tuple) else value


def _fits(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, typing.get_args(kind)[0]) for item in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _describe(kind: Any) -> str:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_describe(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        return " or ".join(repr(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"a tuple of {typing.get_args(kind)[0].__name__}s"
    return "None" if kind is type(None) else f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"
