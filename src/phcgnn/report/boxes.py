"""Box plots over the splits: the paper's Figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phcgnn.experiments.paper import SPLITS, Group, PaperTable
from phcgnn.experiments.results import RowResult
from phcgnn.report.picture import COLOURS, FOREGROUND, Picture, drawing
from phcgnn.report.statistics import box

__all__ = ["split_boxes"]

TITLES = {"train": "training", "val": "validation", "test": "test"}
OUTLIER = "#e5484d"


def split_boxes(name: str, table: PaperTable, group: Group, results: Sequence[RowResult]) -> Picture | None:
    """Draw a box a model and split, over the runs; None if there are none.

    Of a group that the paper draws, the rows that it draws; else all rows.
    """
    there = [result for result in results if result.row.group == group and result.runs]
    drawn = [result for result in there if result.row.name in table.boxes]
    rows = drawn or there
    scores = {split: [(row, found) for row in rows if (found := row.score(split))] for split in SPLITS}
    splits = [split for split in SPLITS if scores[split]]
    if not splits:
        return None
    title = f"{group.title}: {group.score} over the splits" + (" (the paper's Figure 1)" if drawn else "")
    caption = (
        "Median, quartiles, whiskers to the last value within 1.5 times the box, outliers in red; each run is a dot. "
        "A hollow diamond is the paper's mean, with its deviation."
    )
    labels = [row.row.label for row in rows]
    with drawing(name, title, caption, (max(6.0, 0.3 * len(rows) * len(splits)), 3.8)) as (figure, pictures):
        for axes, split in zip(figure.subplots(1, len(splits), sharey=True, squeeze=False)[0], splits, strict=True):
            axes.set_title(TITLES[split])
            for row, found in scores[split]:
                _draw(axes, labels.index(row.row.label), found.values)
                paper = row.published(split)
                if paper is not None:
                    place = labels.index(row.row.label) + 0.36
                    look: dict[str, Any] = {"mfc": "none", "color": FOREGROUND, "markersize": 5, "linewidth": 0.8}
                    axes.errorbar(place, paper.mean, yerr=paper.std, fmt="D", **look)
            axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", rotation_mode="anchor")
            axes.set_xlim(-0.6, len(labels) - 0.4)
            axes.grid(False, axis="x")
        figure.axes[0].set_ylabel(group.score)
    return pictures[0]


def _draw(axes: Any, place: int, values: Sequence[float]) -> None:
    stats, colour = box(values), COLOURS[place % len(COLOURS)]
    entry = {"med": stats.median, "q1": stats.first, "q3": stats.third, "whislo": stats.low, "whishi": stats.high}
    line = {"color": colour, "linewidth": 1.3}
    axes.bxp(
        [entry],
        positions=[place],
        widths=0.5,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": colour + "40", "edgecolor": colour, "linewidth": 1.3},
        medianprops={"color": colour, "linewidth": 2.2},
        whiskerprops=line,
        capprops=line,
        manage_ticks=False,
    )
    usual = [value for value in values if value not in stats.outliers]
    axes.plot([place] * len(usual), usual, ".", color=colour, markersize=4)
    axes.plot([place] * len(stats.outliers), stats.outliers, "o", color=OUTLIER, markersize=4)
