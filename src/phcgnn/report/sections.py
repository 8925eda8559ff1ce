"""Parts that the report of a reproduction and that of single runs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phcgnn.experiments.results import FinishedRun
from phcgnn.models.folder import ModelFolderError
from phcgnn.report.algebras import algebra_distances, layer_table
from phcgnn.report.heatmaps import rule_maps, weight_maps
from phcgnn.report.layers import LARGEST, Layer, layers_of, shown_layers
from phcgnn.report.page import Section, details, figures, note, table
from phcgnn.report.picture import Picture

__all__ = ["MISSING", "Drawn", "rules_section"]

MISSING = "figures are left out: they need matplotlib, pip install 'phcgnn[report]'"


class Drawn(list[Picture]):
    """The figures of a report, to be written as files too.

    Args:
        possible: Whether anything can be drawn here; if not, figures are left out.
    """

    def __init__(self, possible: bool) -> None:
        super().__init__()
        self.possible = possible

    def show(self, *pictures: Picture | None) -> str:
        """Keep figures, and return them as HTML."""
        found = [picture for picture in pictures if picture is not None]
        self += found
        return figures(found)


def rules_section(name: str, models: Mapping[str, Sequence[FinishedRun]], drawn: Drawn) -> Section | None:
    """Return heat maps, sparsity and distances of each model's first run; None where no model has a PHM layer."""
    parts = []
    for number, (label, runs) in enumerate(models.items()):
        try:
            layers = layers_of(runs[0].folder)
        except (ModelFolderError, OSError, ValueError) as error:
            parts.append(note(f"{label}: the network cannot be read ({error})."))
            continue
        if layers:
            parts.append(_model(f"{name}-{number + 1}", label, runs[0].seed, layers, drawn, unfolded=number == 0))
    if not parts:
        return None
    intro = (
        "Of each model one run: the weight U = Σ C ⊗ W and the rule C of an initial and of a deeper layer, as they "
        "started and as the best epoch left them, and every layer as a line of the table. "
        f"Rules are compared with the known algebras for 1 < n ≤ {LARGEST}; a rule and its weight may trade a factor, "
        "so a distance says as much about scale as about the table of signs."
    )
    return Section(name, "Weights and rules", (note(intro), *parts))


def _model(name: str, label: str, seed: int, layers: list[Layer], drawn: Drawn, *, unfolded: bool) -> str:
    parts = []
    if drawn.possible:
        for place, layer in enumerate(shown_layers(layers), 1):
            rule = rule_maps(f"{name}-rule-{place}", layer) if layer.n > 1 else None
            parts.append(drawn.show(weight_maps(f"{name}-weight-{place}", layer), rule))
        parts.append(drawn.show(algebra_distances(f"{name}-algebras", f"{label}: distance to known algebras", layers)))
    parts.append(table(layer_table(f"{label}, layer by layer", layers)))
    return details(f"{label}, seed {seed}", *parts, unfolded=unfolded)
