"""Heat maps of a layer's weight U and of its rule's matrices, at the start and after training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from phcgnn.report.layers import Layer, State
from phcgnn.report.picture import FOREGROUND, Picture, drawing

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

__all__ = ["mosaic", "rule_maps", "weight_maps"]

LEVELS = 33
"""Of colour: the eye tells no more apart, and the picture is a third of the size."""

CLIP = 99.5
"""Per cent of a weight's entries that the scale covers; a few outliers shall not take the colour from all others."""

NEGATIVE, POSITIVE = (0.23, 0.50, 0.84), (0.85, 0.39, 0.16)


def weight_maps(name: str, layer: Layer) -> Picture:
    """Draw U as a heat map, with its sparsity."""
    states = _states(layer)
    rows, columns = layer.end.dense.shape
    entries = np.concatenate([np.abs(state.dense.numpy()).ravel() for _, state in states])
    limit = float(np.percentile(entries, CLIP)) or 1.0
    title = f"U of {layer.title}, {rows} x {columns}"
    caption = (
        "s(U) = 1 - mean |U|, as the paper's appendix defines it. Zero is transparent; "
        f"the scale covers {CLIP} % of the entries."
    )
    with drawing(name, title, caption, (6.0, 3.0)) as (figure, pictures):
        axes = figure.subplots(1, len(states), squeeze=False)[0]
        for one, (when, state) in zip(axes, states, strict=True):
            image = _show(one, state.dense.numpy(), limit)
            one.set_title(f"{when}: s(U) = {state.sparsity:.4f}")
        _scale(figure, image, axes)
    return pictures[0]


def rule_maps(name: str, layer: Layer) -> Picture:
    """Draw the matrices C_1, C_2, ... side by side."""
    states = _states(layer)
    terms = layer.end.constants.shape[0]
    limit = max(float(state.constants.abs().max()) for _, state in states) or 1.0
    columns = terms if terms <= 5 else math.ceil(math.sqrt(terms))
    title = f"Rule of {layer.title}: C₁ to C{_subscript(terms)}, {layer.n} x {layer.n} each"
    caption = "From left to right and from top to bottom. Zero is transparent."
    wide = terms <= 5
    with drawing(name, title, caption, (6.0, 3.0)) as (figure, pictures):
        shape = (len(states), 1) if wide else (1, len(states))
        axes = figure.subplots(*shape, squeeze=False).ravel()
        for one, (when, state) in zip(axes, states, strict=True):
            image = _show(one, mosaic(state.constants.numpy(), columns), limit)
            one.set_title(when)
            for number in range(terms):
                row, column = divmod(number, columns)
                left, top = column * (layer.n + 1) - 0.5, row * (layer.n + 1) - 0.5
                _frame(one, left, top, layer.n)
        _scale(figure, image, axes)
    return pictures[0]


def mosaic(matrices: npt.NDArray[Any], columns: int) -> npt.NDArray[Any]:
    """Lay matrices out in rows of so many, a gap of NaN between them.

    >>> mosaic(np.array([[[1.0]], [[2.0]], [[3.0]]]), 2)
    array([[ 1., nan,  2.],
           [nan, nan, nan],
           [ 3., nan, nan]])
    """
    terms, n, _ = matrices.shape
    rows = -(-terms // columns)
    sheet = np.full((rows * (n + 1) - 1, columns * (n + 1) - 1), np.nan)
    for number, matrix in enumerate(matrices):
        top, left = (n + 1) * (number // columns), (n + 1) * (number % columns)
        sheet[top : top + n, left : left + n] = matrix
    return sheet


def _states(layer: Layer) -> list[tuple[str, State]]:
    return [(when, state) for when, state in (("start", layer.start), ("trained", layer.end)) if state is not None]


def _show(axes: Any, values: npt.NDArray[Any], limit: float) -> Any:
    axes.set_axis_off()
    return axes.imshow(values, cmap=_colours(), vmin=-limit, vmax=limit, interpolation="none")


def _frame(axes: Any, left: float, top: float, n: int) -> None:
    x = [left, left + n, left + n, left, left]
    y = [top, top, top + n, top + n, top]
    axes.plot(x, y, color=FOREGROUND, linewidth=0.5, alpha=0.5, clip_on=False)


def _scale(figure: Any, image: Any, axes: Any) -> None:
    figure.get_layout_engine().set(wspace=0.06)
    bar = figure.colorbar(image, ax=list(axes), shrink=0.8, aspect=25)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)


def _colours() -> Colormap:
    """Blue for negative, orange for positive, and the less of it the nearer to zero."""
    from matplotlib.colors import ListedColormap

    levels = np.linspace(-1, 1, LEVELS)
    colours = [(*(NEGATIVE if level < 0 else POSITIVE), abs(level)) for level in levels]
    return ListedColormap(colours).with_extremes(bad=(0, 0, 0, 0))


def _subscript(number: int) -> str:
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))
