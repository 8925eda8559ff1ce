"""How far learned rules are from the known algebras, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from phcgnn.experiments.comparison import Cell, Grid
from phcgnn.report.layers import Layer
from phcgnn.report.picture import Picture, drawing, style

__all__ = ["algebra_distances", "layer_table"]


def algebra_distances(name: str, title: str, layers: Sequence[Layer]) -> Picture | None:
    """Draw the distance of each layer's learned rule to each known algebra; None where there are none to compare."""
    compared = [layer for layer in layers if layer.end.distances]
    if not compared:
        return None
    caption = (
        "Root mean square difference of the products of basis elements, under the best renaming and change of signs "
        "of the basis; 0 would be the same algebra. After training."
    )
    known = list(compared[0].end.distances)
    with drawing(name, title, caption, (max(6.0, 0.28 * len(compared)), 4.4)) as (figure, pictures):
        axes = figure.subplots()
        places = range(len(compared))
        for number, algebra in enumerate(known):
            look = style(number)
            axes.plot(places, [layer.end.distances[algebra] for layer in compared], label=algebra, markersize=4, **look)
        axes.set_xticks(places, [layer.title for layer in compared], rotation=60, ha="right", rotation_mode="anchor")
        axes.set_ylabel("distance")
        axes.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=min(len(known), 3), fontsize=9)
    return pictures[0]


def layer_table(title: str, layers: Sequence[Layer]) -> Grid:
    """Return a line a layer: its sparsity before and after, the nearest known algebra, and how far its rule moved.

    The algebras are left out where there are none to compare with.
    """
    columns = ["Layer", "U", "s(U), start", "s(U), trained", "Rule moved (RMS)"]
    compared = any(layer.end.distances for layer in layers)
    if compared:
        columns += ["Nearest, start", "Distance", "Nearest, trained", "Distance"]
    return Grid(title, tuple(columns), tuple(_line(place, layer, compared) for place, layer in enumerate(layers)))


def _line(place: int, layer: Layer, compared: bool) -> tuple[Cell, ...]:
    rows, columns = layer.end.dense.shape
    line = [
        Cell(layer.title, place),
        Cell(f"{rows} x {columns}", rows * columns),
        _number(None if layer.start is None else layer.start.sparsity, 4),
        _number(layer.end.sparsity, 4),
        _number(layer.moved, 3),
    ]
    if compared:
        for state in (layer.start, layer.end):
            nearest = None if state is None else state.nearest
            line += [Cell("-"), Cell("-")] if nearest is None else [Cell(nearest[0]), _number(nearest[1], 3)]
    return tuple(line)


def _number(value: float | None, digits: int) -> Cell:
    return Cell("-") if value is None else Cell(f"{value:.{digits}f}", value)
