"""The PHM layers of a finished run, as they were at the start and as training left them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from phcgnn.algebra import Algebra
from phcgnn.functional import kronecker_sum
from phcgnn.models import PHCGNN
from phcgnn.models.folder import load_model
from phcgnn.nn import PHMLinear
from phcgnn.report.statistics import sparsity
from phcgnn.training.start import START_FILE, load_start

__all__ = ["LARGEST", "Layer", "State", "layer_title", "layers_of", "shown_layers"]

LARGEST = 7
"""The largest n for which learned rules are compared with the known ones: each comparison tries 2^n n! renamings."""


@dataclass(frozen=True)
class State:
    """A PHM layer's weight and rule at one time."""

    constants: Tensor
    weight: Tensor

    @cached_property
    def dense(self) -> Tensor:
        """The weight matrix U."""
        return kronecker_sum(self.constants, self.weight)

    @property
    def sparsity(self) -> float:
        """The paper's s(U)."""
        return sparsity(self.dense)

    @cached_property
    def distances(self) -> dict[str, float]:
        """How far the rule is from each known algebra; empty where n is 1, too large, or not the number of terms."""
        terms, n, _ = self.constants.shape
        if terms != n or not 1 < n <= LARGEST or not self.constants.isfinite().all():
            return {}
        rule = Algebra(self.constants)
        return {known.name: rule.distance(known) for known in Algebra.known(n)}

    @property
    def nearest(self) -> tuple[str, float] | None:
        """The closest known algebra."""
        return min(self.distances.items(), key=lambda item: item[1], default=None)


@dataclass(frozen=True)
class Layer:
    """A PHM layer of a run.

    Attributes:
        name: The module's.
        title: For people.
        n: Dimension of its rule.
        start: Before training; None where the run kept no start.
        end: With the weights of the best epoch.
    """

    name: str
    title: str
    n: int
    start: State | None
    end: State

    @property
    def moved(self) -> float | None:
        """Root mean square difference of the rule's entries between start and end."""
        if self.start is None:
            return None
        return (self.end.constants - self.start.constants).double().square().mean().sqrt().item()


def layers_of(folder: Path) -> list[Layer]:
    """Return the PHM layers of a run's network, from the input to the output; none for a plain real one."""
    model = load_model(folder).model
    began = load_start(model, folder / START_FILE) if (folder / START_FILE).is_file() else None
    before = _states(began) if began is not None else {}
    return [
        Layer(name, layer_title(name), state.constants.shape[-1], before.get(name), state)
        for name, state in _states(model).items()
    ]


def shown_layers(layers: list[Layer]) -> list[Layer]:
    """Return an initial and a deeper layer, as in the paper's figure: the first and the last that pass messages."""
    inner = [layer for layer in layers if layer.name.startswith("convs.")] or layers
    return inner if len(inner) < 2 else [inner[0], inner[-1]]


def layer_title(name: str) -> str:
    """Return a module's name in words.

    >>> layer_title("convs.3.transform.linear1"), layer_title("convs.0.transform"), layer_title("predictor.linears.0")
    ('layer 4, linear 1', 'layer 1', 'predictor 1')
    >>> layer_title("pool.linear"), layer_title("predictor.last"), layer_title("else.where")
    ('pooling', 'predictor, last', 'else.where')
    """
    match name.split("."):
        case ["convs", number, "transform"]:
            return f"layer {int(number) + 1}"
        case ["convs", number, "transform", part]:
            return f"layer {int(number) + 1}, linear {part.removeprefix('linear')}"
        case ["predictor", "linears", number]:
            return f"predictor {int(number) + 1}"
        case ["predictor", "last"]:
            return "predictor, last"
        case ["pool", *_]:
            return "pooling"
    return name


def _states(model: PHCGNN) -> dict[str, State]:
    with torch.no_grad():
        return {
            name: State(module.rule.constants.detach().float(), module.weight.detach().float())
            for name, module in model.named_modules()
            if isinstance(module, PHMLinear)
        }
