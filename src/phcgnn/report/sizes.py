"""Parameters against score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phcgnn.experiments.comparison import Grid
from phcgnn.experiments.paper import Group
from phcgnn.experiments.results import RowResult
from phcgnn.report.picture import COLOURS, FOREGROUND, Picture, drawing

__all__ = ["parameters_against_score"]


def parameters_against_score(name: str, group: Group, grid: Grid, results: Sequence[RowResult]) -> Picture | None:
    """Draw the test score of each model over its number of learnable parameters; None if nothing has been scored.

    Args:
        name: Of the file.
        group: The data set.
        grid: Its table, which holds the paper's numbers.
        results: The rows of all data sets.
    """
    ours = [
        (result.row.label, result.parameters, found)
        for result in results
        if result.row.group == group and result.parameters is not None and (found := result.score("test"))
    ]
    if not ours:
        return None
    title = f"{group.title}: parameters against test {group.score}"
    caption = "Filled: ours, mean and standard deviation over the runs. Hollow: the paper's."
    with drawing(name, title, caption, (6.0, 4.0)) as (figure, pictures):
        axes = figure.subplots()
        for label, count, mean in _paper(grid, group):
            axes.plot(count, mean, "D", mfc="none", color=FOREGROUND, markersize=5, linewidth=0.8)
            if label not in {shown for name, *_ in ours for shown in (name, f"{name} (ours)")}:
                _name(axes, label, count, mean)
        for number, (label, parameters, score) in enumerate(ours):
            colour = COLOURS[number % len(COLOURS)]
            axes.errorbar(parameters, score.mean, yerr=score.std, fmt="o", color=colour, capsize=3)
            _name(axes, label, parameters, score.mean)
        axes.set_xscale("log")
        axes.set_xlabel("learnable parameters")
        axes.set_ylabel(f"test {group.score}")
        axes.margins(x=0.18)
        _tick(axes)
    return pictures[0]


def _paper(grid: Grid, group: Group) -> list[tuple[str, float, float]]:
    """Return name, parameters and test score of every row for which the paper prints both."""
    count = grid.columns.index("Paper's")
    test = grid.columns.index(f"Test {group.score}") + 1
    found = []
    for row in grid.rows:
        parameters, score = row[count].value, row[test].value
        if parameters is not None and score is not None:
            found.append((row[0].text, parameters, score))
    return found


def _name(axes: Any, label: str, x: float, y: float) -> None:
    axes.annotate(label, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)


def _tick(axes: Any) -> None:
    """Write counts as people do, and not too many of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_xlim()
    narrow = high / low < 30
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    if high / low < 2.5:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def short_count(value: float) -> str:
    """Write a number of parameters shortly.

    >>> short_count(403_443), short_count(1_690_328), short_count(980)
    ('403K', '1.69M', '980')
    """
    for size, letter in ((1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
