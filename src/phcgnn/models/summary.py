"""What a network consists of, as a table."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table
from torch import nn

from phcgnn.nn.linear import PHMLinear
from phcgnn.nn.rule import MultiplicationRule

if TYPE_CHECKING:
    from phcgnn.models.phc_gnn import PHCGNN

__all__ = ["Summary", "SummaryRow", "summarize"]


class SummaryRow(NamedTuple):
    """One part of a network."""

    part: str
    shape: str
    parameters: int


class Summary(NamedTuple):
    """The parts of a network; prints as a table."""

    rows: tuple[SummaryRow, ...]
    total: int
    """Learnable parameters."""
    plain: int
    """What the same network has with plain linear layers."""

    def __rich__(self) -> Table:
        table = Table()
        table.add_column("part")
        table.add_column("shape")
        table.add_column("parameters", justify="right")
        for row in self.rows:
            table.add_row(row.part, row.shape, f"{row.parameters:,}")
        table.add_section()
        table.add_row("total", "", f"{self.total:,}", style="bold")
        table.add_row("with plain linear layers", "", f"{self.plain:,}", style="dim")
        return table

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=100, color_system=None).print(self)
        return text.getvalue().rstrip()


def summarize(model: PHCGNN) -> Summary:
    """Describe a network.

    >>> from phcgnn.models import PHCGNN
    >>> model = PHCGNN(node_features=(28,), edge_features=None, n=4, width=32, layers=1, downstream=())
    >>> print(model.summary())
    ┏━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━┓
    ┃ part                     ┃ shape        ┃ parameters ┃
    ┡━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━┩
    │ node encoder             │ 28 -> 32     │        896 │
    │ layer 1                  │ 32 -> 32     │        832 │
    │ pooling: attention       │ 32 -> 32     │        616 │
    │ predictor                │ 32 -> 4 -> 1 │        105 │
    ├──────────────────────────┼──────────────┼────────────┤
    │ total                    │              │      2,449 │
    │ with plain linear layers │              │      4,593 │
    └──────────────────────────┴──────────────┴────────────┘
    """
    config, widths = model.config, model.config.layer_widths
    rows = []
    if model.rule is not None:
        rows.append(SummaryRow("shared rule", " x ".join(map(str, model.rule.constants.shape)), _own(model.rule)))
    shared = {id(model.rule.constants)} if model.rule is not None else set()
    source = config.node_features if config.node_features is not None else config.node_source
    rows.append(SummaryRow("node encoder", f"{_features(source)} -> {config.width}", _own(model.node_encoder)))
    for layer in range(config.layers):
        parts = [model.convs[layer], model.norms[layer], model.activations[layer]]
        rows.append(
            SummaryRow(
                f"layer {layer + 1}", f"{widths[layer]} -> {config.width}", sum(_own(part, shared) for part in parts)
            )
        )
        if config.edge_features is not None:
            shape = f"{_features(config.edge_features)} -> {widths[layer]}"
            rows.append(SummaryRow("  edge encoder", shape, _own(model.edge_encoders[layer])))
    first = model.predictor.linears[0] if len(model.predictor.linears) else model.predictor.last
    entry = int(first.in_features)  # type: ignore[arg-type]
    if model.pool is not None:
        name = config.pooling if config.pooling != "custom" else type(model.pool).__name__
        rows.append(SummaryRow(f"pooling: {name}", f"{widths[-1]} -> {entry}", _own(model.pool, shared)))
    chain = (entry, *config.downstream, config.n * config.targets, config.targets)
    rows.append(SummaryRow("predictor", " -> ".join(map(str, chain)), _own(model.predictor, shared)))
    total = sum(row.parameters for row in rows)
    phm = [module for module in model.modules() if isinstance(module, PHMLinear)]
    rules = {id(m.constants): _own(m) for m in model.modules() if isinstance(m, MultiplicationRule)}
    saved = sum(rules.values()) + sum(layer.weight.numel() - layer.in_features * layer.out_features for layer in phm)
    return Summary(tuple(rows), total, total - saved)


def _own(module: nn.Module, shared: set[int] | None = None) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad and id(p) not in (shared or ()))


def _features(features: object) -> str:
    if isinstance(features, tuple):
        return " + ".join(map(str, features))
    return str(features)
