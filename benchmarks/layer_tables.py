"""The tables of ``docs/layers.md``, from the JSON lines of ``benchmarks/layer.py``.

    python benchmarks/layer_tables.py h200.jsonl                          # print them
    python benchmarks/layer_tables.py h200.jsonl --into docs/layers.md    # put them in the place of the ones there

A page has a place for the tables of the CPU and one for those of a GPU: ``<!-- tables: cpu -->`` or
``<!-- tables: cuda -->``, up to ``<!-- end of tables -->``. Several files are read as one; which device they are of is
said by their first line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "markdown", "put", "require_place", "tables"]

Line = dict[str, Any]
END = "<!-- end of tables -->"


def read(paths: Iterable[Path]) -> list[Line]:
    """Read the lines of all files."""
    return [json.loads(text) for path in paths for text in path.read_text(encoding="utf-8").splitlines() if text]


def tables(lines: Sequence[Line]) -> str:
    """Return everything that the lines have tables for, as Markdown."""
    single = [line for line in lines if line["benchmark"] == "layer" and (line["width"], line["rows"]) == (304, 6000)]
    gpu = any(line["captured"] for line in single)
    parts = [machine(line) for line in lines if line["benchmark"] == "layer-machine"][:1]
    parts += [steps_on_a_gpu(single), eval_on_a_gpu(single)] if gpu else [steps_on_the_cpu(single)]
    even = [line for line in lines if line["benchmark"] == "layer-break-even"]
    if even:
        parts.append("From how many rows on a training step costs less than 10% extra:")
    for precision in dict.fromkeys(line["precision"] for line in even):
        parts.append(break_even([line for line in even if line["precision"] == precision], precision))
    for line in lines:
        if line["benchmark"] == "layer-cut-short":
            parts.append(
                f"(Not measured for lack of time: {line['precision']}, width {line['width']:,}, from {line['rows']:,}.)"
            )
    return "\n\n".join(part for part in parts if part)


def machine(line: Line) -> str:
    """Say where and when."""
    threads = "" if "NVIDIA" in line["device"] else f", {line['threads']} threads"
    return (
        f"{line['device']}{threads}, torch {line['torch']}, Python {line['python']}, {line['date']}; "
        "6,000 rows, 304 -> 304."
    )


def steps_on_the_cpu(lines: Sequence[Line]) -> str:
    """Tabulate time and memory of both passes."""
    head = ["pass", "n", "`nn.Linear` ms", "`PHMLinear` ms", "textbook ms", "ratio to `nn.Linear`"]
    product, memory = (all(name in line for line in lines) for name in ("ratio_to_affine", "phm_peak_mb"))
    rows = []
    for line in sorted(lines, key=lambda line: (line["pass"] != "forward+backward", line["n"])):
        times = [f"{line[f'{name}_ms']:.2f}" for name in ("linear", "phm", "textbook")]
        row = [line["pass"], line["n"], *times, f"{line['ratio_to_linear']:.3f}"]
        if product:
            row.append(f"{line['ratio_to_affine']:.3f}")
        if memory:
            row.append(", ".join(f"{line[f'{name}_peak_mb']:.1f}" for name in ("linear", "phm", "textbook")))
        rows.append(row)
    head += ["ratio to it with the same product"] if product else []
    return markdown(head + (["peak MB: linear, PHM, textbook"] if memory else []), rows)


def steps_on_a_gpu(lines: Sequence[Line]) -> str:
    """Tabulate a training step, replayed and launched."""
    head = ("training step", "n", "`nn.Linear` captured ms", "`PHMLinear`", "textbook", "ratio")
    rows = []
    train = [line for line in lines if line["pass"] == "forward+backward"]
    launched = {(line["precision"], line["n"]): line for line in train if not line["captured"]}
    for line in train:
        if line["captured"]:
            times = [f"{line[f'{name}_ms']:.3f}" for name in ("linear", "phm", "textbook")]
            eager = launched[line["precision"], line["n"]]
            slow = [f"{eager[f'{name}_ms']:.2f}" for name in ("linear", "phm", "textbook")]
            rows.append([line["precision"], line["n"], *times, f"{line['ratio_to_linear']:.2f}", *slow])
    return markdown([*head, "eager: `nn.Linear` ms", "`PHMLinear`", "textbook"], rows)


def eval_on_a_gpu(lines: Sequence[Line]) -> str:
    """Tabulate the forward pass in eval mode."""
    rows = [
        [
            line["precision"],
            line["n"],
            f"{line['linear_ms']:.3f}",
            f"{line['phm_ms']:.3f}",
            f"{line['ratio_to_linear']:.2f}",
        ]
        for line in lines
        if line["pass"] == "forward, eval"
    ]
    return markdown(["eval, eager", "n", "`nn.Linear` ms", "`PHMLinear` ms", "ratio"], rows)


def break_even(lines: Sequence[Line], precision: str) -> str:
    """Tabulate the row counts of one precision, widths down, n across."""
    dimensions = sorted({line["n"] for line in lines})
    cells = {(line["width"], line["n"]): line for line in lines}

    def cell(line: Line) -> str:
        if line["rows"] is not None:
            return f"{line['rows']:,}"
        return "not tried" if line["tried"] is None else f"more than {line['tried']:,}"

    rows = [[f"{width:,}", *(cell(cells[width, n]) for n in dimensions)] for width in sorted({w for w, _ in cells})]
    return markdown([f"{precision}, width", *(f"n = {n}" for n in dimensions)], rows)


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table, or nothing where there are no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def put(page: str, name: str, text: str) -> str:
    """Return the page with the text in the place of that name."""
    start = f"<!-- tables: {name} -->"
    before, found, rest = page.partition(start)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the page has no place for the tables of {name}: it needs the lines '{start}' and '{END}'.")
    return f"{before}{start}\n\n{text}\n\n{END}{after}"


def require_place(page: Path, name: str) -> None:
    """Stop before anything is measured where its table could not be put."""
    try:
        put(page.read_text(encoding="utf-8"), name, "")
    except (OSError, ValueError) as error:
        sys.exit(f"{page}: {error}")


def main() -> None:
    """Read the options and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="what benchmarks/layer.py -o wrote")
    parser.add_argument("--into", type=Path, help="a Markdown page with a place for them")
    options = parser.parse_args()
    lines = read(options.files)
    text = tables(lines)
    if options.into is None:
        print(text)
        return
    name = "cuda" if "NVIDIA" in str(lines[0].get("device")) else "cpu"
    try:
        page = put(options.into.read_text(encoding="utf-8"), name, text)
    except ValueError as error:
        sys.exit(f"{options.into}: {error}")
    options.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
