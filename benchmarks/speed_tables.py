"""The tables of ``docs/speed.md``, from the JSON lines of ``benchmarks/step.py`` and ``benchmarks/growth.py``.

    python benchmarks/speed_tables.py cpu.jsonl                              # print them
    python benchmarks/speed_tables.py cpu.jsonl --into docs/speed.md         # put them in the place of the ones there

A page has a place for each kind: ``<!-- tables: cpu -->``, ``<!-- tables: cuda -->`` and ``<!-- tables: growth -->``,
up to ``<!-- end of tables -->``. A figure of ``docs/figures/growth.py`` is shown where it lies beside the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layer_tables import markdown, put, read

__all__ = ["kind", "main", "tables"]

Line = dict[str, Any]

GROWTH = {
    "n": "n",
    "width": "width",
    "batch_size": "graphs a batch",
    "edges_per_node": "edges a node",
    "graphs": "graphs of the data set",
    "prediction_batch_size": "graphs a batch, prediction",
}


def kind(lines: Sequence[Line]) -> str:
    """Return the name of the place that the lines belong to."""
    head = lines[0]
    if head["benchmark"] == "growth-machine":
        return "growth"
    return "cuda" if _on_gpu(head) else "cpu"


def _on_gpu(head: Line) -> bool:
    return bool(head.get("cuda", "NVIDIA" in str(head["device"])))  # lines from before 2026-11-20 do not say


def tables(lines: Sequence[Line], figures: Path | None = None) -> str:
    """Return everything that the lines have tables for, as Markdown.

    Args:
        lines: Of one program.
        figures: The folder of the figures, to show those that are there.
    """
    head, name = lines[0], kind(lines)
    threads = "" if _on_gpu(head) else f", {head['threads']} threads"
    parts = [f"{head['device']}{threads}, torch {head['torch']}, Python {head['python']}, {head['date']}."]
    parts += {"cpu": on_cpu, "cuda": on_gpu}[name](lines) if name != "growth" else growth(lines, figures)
    return "\n\n".join(part for part in parts if part)


def on_cpu(lines: Sequence[Line]) -> list[str]:
    """Tabulate ours against the plain network, and where the time goes."""
    head = (
        "network",
        "data",
        "batch",
        "",
        "ours, graphs/s",
        "written plainly",
        "times",
        "plainly, weights kept",
        "times",
    )
    rows = []
    for line in lines:
        if line["benchmark"] == "step":
            for what in ("training", "prediction"):
                rates = [f"{line[f'{name}_{what}_graphs_per_second']:,.0f}" for name in ("ours", "plain")]
                where = (line["preset"], line["data"], line["batch_size"])
                kept = line.get(f"plain_folded_{what}_graphs_per_second")  # of predictions alone
                kept = ["", ""] if kept is None else [f"{kept:,.0f}", f"{line[f'{what}_times_plain_folded']:.2f}"]
                rows.append([*where, what, *rates, f"{line[f'{what}_times_plain']:.2f}", *kept])
    parts = [markdown(head, rows)]
    for line in lines:
        if line["benchmark"] == "step-capability":
            library = "oneDNN" if line["onednn"] else "what torch uses"
            parts.append(
                f"What the processor does at best: products {line['product_gflops']:,.0f} GFLOP/s by {library} "
                f"({line['torch_linear_gflops']:,.0f} by `F.linear`), copies {line['copy_in_cache_gb_s']:,.0f} GB/s in "
                f"the cache and {line['copy_from_memory_gb_s']:,.0f} GB/s from memory."
            )
        if line["benchmark"] == "step-profile":
            parts.append(
                f"A training step of {line['preset']} ({line['batch_size']} graphs): {line['step_ms']:,.1f} ms for "
                f"{line['gflop']:,.1f} GFLOP, of which products take {line['products_share']:.0%} at "
                f"{line['products_gflops']:,.0f} GFLOP/s; at least {line['mbyte']:,.0f} MB have to be moved."
            )
            own = [other for other in lines if other["benchmark"] == "step-operation"]
            own = [other for other in own if other["preset"] == line["preset"]]
            cells = [[f"`{o['operation']}`", f"{o['calls']:g}", f"{o['ms']:.2f}", f"{o['share']:.1%}"] for o in own]
            parts.append(markdown(("operation, by itself", "calls a step", "ms a step", "share"), cells))
    return parts


def on_gpu(lines: Sequence[Line]) -> list[str]:
    """Tabulate the fast path against the plain one and the floor."""
    head = ("network", "batch", "ms a step", "floor ms", "graphs/s", "peak MB", "kernels", "launched one by one, ms")
    own = ("kept", "replay with our kernels, ms", "without")
    rows, kinds = [], ("kernels_ms", "without_kernels_ms")
    for line in lines:
        if line["benchmark"] == "step":
            name = f"{line['preset']}{', `nn.Linear`' if line['dense'] else ''}"
            times = (f"{line['step_ms']:.3f}", f"{line['floor_ms']:.3f}", f"{line['graphs_per_second']:,}")
            memory = (f"{line['fast_peak_mb']:,.0f}", line["fast_kernels"])
            replays = ["" if line.get(kind) is None else f"{line[kind]:.3f}" for kind in kinds]
            kept = line.get("path", "")
            rows.append([name, line["batch_size"], *times, *memory, f"{line['plain_ms']:.2f}", kept, *replays])
    cut = [line["preset"] for line in lines if line["benchmark"] == "step-cut-short"]
    slow = [line for line in lines if line["benchmark"] == "step" and line["fast_path"] != "used"]
    return [
        markdown((*head, *own), rows),
        _of_kernels(lines),
        f"Not measured for lack of time: {', '.join(cut)}." if cut else "",
        *(f"{line['preset']} took the plain path: {line['fast_path']}." for line in slow),
    ]


def _of_kernels(lines: Sequence[Line]) -> str:
    """Tabulate our kernels against torch's operations."""
    found = [line for line in lines if line["benchmark"] == "step-kernel"]
    kinds = ("forward_kernel_us", "forward_torch_us", "both_kernel_us", "both_torch_us")
    head = ("operation", "as in", "nodes", "edges", "width", "forward, µs", "torch's", "with backward, µs", "torch's")
    rows = [
        [line["operation"], line["like"], line["nodes"], line["edges"], line["width"], *(line[kind] for kind in kinds)]
        for line in found
    ]
    return markdown(head, rows) if rows else ""


def growth(lines: Sequence[Line], figures: Path | None) -> list[str]:
    """Tabulate what grows against what."""
    parts = []
    for against, title in GROWTH.items():
        own = [line for line in lines if line.get("against") == against]
        if not own:
            continue
        columns = {"step_ms": "ms a step", "epoch_s": "seconds an epoch", "graphs_per_second": "graphs/s"}
        columns |= {"peak_mb": "peak MB", "store_mb": "store MB"}
        columns = {key: name for key, name in columns.items() if key in own[0]}
        if figures is not None and (figures / f"growth-{against}.svg").is_file():
            parts.append(f"![Cost against {title}](figures/growth-{against}.svg)")
        rows = [[f"{line['value']:,}", *(f"{line[key]:,.1f}" for key in columns)] for line in own]
        parts.append(markdown((title, *columns.values()), rows))
    return parts


def main() -> None:
    """Read the options and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what step.py or growth.py wrote with -o")
    parser.add_argument("--into", type=Path, help="a Markdown page with a place for them")
    options = parser.parse_args()
    lines = read([options.file])
    if options.into is None:
        print(tables(lines))
        return
    try:
        text = tables(lines, options.into.parent / "figures")
        page = put(options.into.read_text(encoding="utf-8"), kind(lines), text)
    except ValueError as error:
        sys.exit(f"{options.into}: {error}")
    options.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
