"""Draw docs/figures/growth-*.svg, one figure a quantity, from what benchmarks/growth.py wrote.

python docs/figures/growth.py growth.jsonl
python docs/figures/growth.py growth.jsonl --into some/folder
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

mpl.rcParams["svg.hashsalt"] = "phcgnn"  # the same file for the same numbers

TITLES = {
    "n": "n",
    "width": "width",
    "batch_size": "graphs a batch",
    "edges_per_node": "edges a node",
    "graphs": "graphs of the data set",
    "prediction_batch_size": "graphs a batch",
}
LEFT = {"step_ms": "ms a training step", "epoch_s": "seconds an epoch", "graphs_per_second": "graphs a second"}


NARROW = 4
"""Values whose largest is less than so many times their smallest are drawn from zero on, the others on a log scale."""


def draw(against: str, lines: list[dict[str, Any]], path: Path) -> None:
    """Draw time (or rate) against what was varied, and memory beside it where it was measured."""
    measured = next(name for name in LEFT if name in lines[0])
    figure, axes = plt.subplots(figsize=(4.6, 2.8), constrained_layout=True)
    _curve(axes, lines, measured, "o-", "#1f5fa8", LEFT[measured])
    if "peak_mb" in lines[0]:
        _curve(axes.twinx(), lines, "peak_mb", "s--", "#b4662a", "peak MB")
    values = [line["value"] for line in lines]
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=7)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(TITLES[against])
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _curve(axes: Any, lines: list[dict[str, Any]], name: str, style: str, colour: str, label: str) -> None:
    heights = [line[name] for line in lines]
    axes.plot([line["value"] for line in lines], heights, style, color=colour, markersize=4)
    axes.set_ylabel(label, color=colour)
    if max(heights) < NARROW * min(heights):
        axes.set_ylim(0, 1.15 * max(heights))
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def main() -> None:
    """Read the options and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what benchmarks/growth.py wrote")
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    lines = [json.loads(text) for text in options.file.read_text(encoding="utf-8").splitlines()]
    for against in TITLES:
        own = [line for line in lines if line.get("against") == against]
        if own:
            draw(against, own, options.into / f"growth-{against}.svg")


if __name__ == "__main__":
    main()
