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


def draw(against: str, lines: list[dict[str, Any]], path: Path) -> None:
    """Draw time (or rate) against what was varied, and memory beside it where it was measured."""
    measured = next(name for name in LEFT if name in lines[0])
    values = [line["value"] for line in lines]
    figure, axes = plt.subplots(figsize=(4.6, 2.8), constrained_layout=True)
    axes.loglog(values, [line[measured] for line in lines], "o-", color="#1f5fa8", markersize=4)
    axes.set_xlabel(TITLES[against])
    axes.set_ylabel(LEFT[measured], color="#1f5fa8")
    axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=7)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    if "peak_mb" in lines[0]:
        memory = axes.twinx()
        memory.loglog(values, [line["peak_mb"] for line in lines], "s--", color="#b4662a", markersize=4)
        memory.set_ylabel("peak MB", color="#b4662a")
        memory.minorticks_off()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


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
