"""Our numbers beside the paper's, as a table of texts that Markdown, LaTeX and HTML only have to draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phcgnn.experiments.paper import Group, OtherMethod, PaperTable
from phcgnn.experiments.results import FinishedRun, RowResult
from phcgnn.experiments.settings import RunSettings, differences
from phcgnn.training.folder import RunFolder

__all__ = ["TABLES", "Cell", "Grid", "compare", "notes", "to_latex", "to_markdown", "write_results"]

TABLES = ("results.csv", "table.md", "table.tex")
"""What :func:`write_results` writes."""

SPLIT_TITLES = {"train": "Training", "val": "Validation", "test": "Test"}


@dataclass(frozen=True)
class Cell:
    """A text, and the number to sort it by.

    Attributes:
        text: What is shown.
        value: What it sorts by; None for plain text.
        kind: ``ours``, ``paper``, ``inside``, ``outside`` or empty; how it may be coloured.
    """

    text: str
    value: float | None = None
    kind: str = ""


@dataclass(frozen=True)
class Grid:
    """A table that is ready to be drawn."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def compare(table: PaperTable, results: Sequence[RowResult]) -> list[Grid]:
    """Return one grid a data set, of the rows that have a finished run and of the other methods."""
    grids = [_times(group, results) if table.timing else _scores(table, group, results) for group in table.groups]
    return [grid for grid in grids if grid.rows]


def notes(table: PaperTable, results: Sequence[RowResult]) -> list[str]:
    """Return what a reader must know: the table's own notes, and where the runs depart from the paper."""
    found = list(table.notes)
    runs = [run for result in results for run in result.runs]
    devices = sorted({run.extra["device"] for run in runs if "device" in run.extra})
    if devices:
        days = sorted({run.extra["date"] for run in runs if "date" in run.extra})
        when = f"; {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
        found.append(f"Trained on: {', '.join(devices)}{when}.")
    found += _other_sizes(results)
    cut, changed = set[tuple[int, int]](), dict[tuple[str, str, str], None]()
    for result in results:
        own = RunSettings.build(result.row.settings())
        for settings in (run.settings for run in result.runs):
            if settings is None:
                continue
            fewer = settings.training.epochs < own.training.epochs
            if fewer:
                cut.add((settings.training.epochs, own.training.epochs))
            for name, value, usual in differences(settings, own):
                if name != "training.seed" and not (fewer and name == "training.epochs"):
                    changed[name, json.dumps(value), json.dumps(usual)] = None
    if changed:
        others = ", ".join(f"{name} = {value} instead of {usual}" for name, value, usual in changed)
        about = "times" if table.timing else "scores"
        found.append(f"Other settings than the row's own: {others}; such {about} say nothing about the paper's.")
    if cut and not table.timing:
        shorter = ", ".join(f"{short} instead of up to {long}" for short, long in sorted(cut))
        found.append(f"Cut short: epochs were {shorter}; such scores say nothing about the paper's.")
    few = [result for result in results if result.runs and len(result.runs) < result.row.group.runs]
    if few and not table.timing:
        found.append("Fewer runs than the paper averages: see the column of runs.")
    if not table.timing:
        found.append("Δ (s.d.): our mean minus the paper's, in units of the paper's standard deviation.")
    return found


def _other_sizes(results: Sequence[RowResult]) -> list[str]:
    """Say which data were not of the published size, and of which rows the runs had different ones."""
    from phcgnn.data.benchmarks import DATASETS

    found: dict[str, dict[str, None]] = {}
    for result in results:
        name = result.row.preset.partition("-")[0]
        other = (run for run in result.runs if run.sizes and run.sizes != dict(DATASETS[name].sizes))
        found.setdefault(name, {}).update(dict.fromkeys(map(_size, other)))
    said = [
        f"The {name} data were not of the published size, but {'; or '.join(sizes)}; such scores say nothing about the "
        "paper's."
        for name, sizes in sorted(found.items())
        if sizes
    ]
    for result in results:
        by_size: dict[str, list[str]] = {}
        for run in result.runs:
            if run.sizes:
                by_size.setdefault(_size(run), []).append(run.folder.name)
        if len(by_size) > 1:
            runs = "; ".join(f"{', '.join(names)}: {size}" for size, names in by_size.items())
            said.append(
                f"The runs of {result.row.name} were trained on different data ({runs}), and do not belong together."
            )
    return said


def _size(run: FinishedRun) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in run.sizes.items())


def to_markdown(table: PaperTable, grids: Sequence[Grid], remarks: Sequence[str]) -> str:
    """Draw a comparison as Markdown."""
    lines = [f"## {table.name}: {table.title}", "", f"The paper's {table.source}.", ""]
    for grid in grids:
        align = ["---", *("---:" for _ in grid.columns[1:])]
        body = [[cell.text.replace("|", "\\|") for cell in row] for row in grid.rows]
        lines += [f"### {grid.title}", ""]
        lines += [f"| {' | '.join(cells)} |" for cells in (grid.columns, align, *body)]
        lines.append("")
    return "\n".join([*lines, *(f"- {remark}" for remark in remarks), ""])


def to_latex(table: PaperTable, grids: Sequence[Grid], remarks: Sequence[str]) -> str:
    """Draw a comparison as LaTeX, for the package ``booktabs``."""
    lines = [f"% {table.name}: {table.title}; the paper's {table.source}"]
    for grid in grids:
        lines += [
            r"\begin{table}",
            rf"\caption{{{_escape(table.title)}: {_escape(grid.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(grid.columns) - 1)}}}",
            r"\toprule",
            " & ".join(map(_escape, grid.columns)) + r" \\",
            r"\midrule",
            *(" & ".join(_escape(cell.text) for cell in row) + r" \\" for row in grid.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    return "\n".join([*lines, *(f"% {remark}" for remark in remarks), ""])


def write_results(
    out: Path, tables: Sequence[tuple[PaperTable, Sequence[RowResult]]], rows: Sequence[dict[str, object]]
) -> None:
    """Write ``results.csv``, ``table.md`` and ``table.tex``, each all or nothing."""
    folder = RunFolder(out)
    folder.write_rows("results.csv", rows)
    drawn = [(table, compare(table, results), notes(table, results)) for table, results in tables]
    folder.write_text("table.md", "\n".join(to_markdown(*one) for one in drawn))
    folder.write_text("table.tex", "\n".join(to_latex(*one) for one in drawn))


def _scores(table: PaperTable, group: Group, results: Sequence[RowResult]) -> Grid:
    columns = ["Model", "Runs", "Parameters", "Paper's"]
    for split in table.splits:
        columns += [f"{SPLIT_TITLES[split]} {group.score}", "Paper", "Δ (s.d.)"]
    rows = [_row(table, group, result) for result in results if result.row.group == group and result.runs]
    rows += [_other(table, group, other) for other in table.others if other.group == group]
    return Grid(group.title, tuple(columns), tuple(rows))


def _row(table: PaperTable, group: Group, result: RowResult) -> tuple[Cell, ...]:
    count = result.parameters
    cells = [
        Cell(f"{result.row.label} (ours)" if table.others else result.row.label),
        Cell(str(len(result.runs)), len(result.runs)),
        Cell("-") if count is None else Cell(f"{count:,}", count),
        Cell(result.row.parameters or "-", _count(result.row.parameters), "paper"),
    ]
    for split in table.splits:
        ours, theirs, apart = result.score(split), result.published(split), result.deviations(split)
        cells += [
            Cell("-") if ours is None else Cell(group.show(ours.mean, ours.std), ours.mean, "ours"),
            Cell("-") if theirs is None else Cell(group.show(theirs.mean, theirs.std), theirs.mean, "paper"),
            Cell("-") if apart is None else Cell(f"{apart:+.1f}", apart, "inside" if abs(apart) <= 1 else "outside"),
        ]
    return tuple(cells)


def _other(table: PaperTable, group: Group, other: OtherMethod) -> tuple[Cell, ...]:
    cells = [Cell(other.name), Cell("-"), Cell("-"), Cell(other.parameters or "-", _count(other.parameters), "paper")]
    for split in table.splits:
        theirs = other.numbers.get(split)
        shown = Cell("-") if theirs is None else Cell(group.show(theirs.mean, theirs.std), theirs.mean, "paper")
        cells += [Cell("-"), shown, Cell("-")]
    return tuple(cells)


def _times(group: Group, results: Sequence[RowResult]) -> Grid:
    ours = {result.row.label: result.score("seconds") for result in results if result.row.group == group}
    paper = {
        result.row.label: number.mean
        for result in results
        if result.row.group == group and (number := result.published("seconds"))
    }
    first, paper_first = ours.get("PHC-1"), paper.get("PHC-1")
    rows = []
    for label, score in ours.items():
        if score is None:
            continue
        ratio = score.mean / first.mean if first else None
        paper_ratio = paper[label] / paper_first if paper_first else None
        rows.append(
            (
                Cell(label),
                Cell(f"{score.mean:.2f}", score.mean, "ours"),
                Cell("-") if ratio is None else Cell(f"{ratio:.2f}", ratio, "ours"),
                Cell(f"{paper[label]:.2f}", paper[label], "paper"),
                Cell("-") if paper_ratio is None else Cell(f"{paper_ratio:.2f}", paper_ratio, "paper"),
            )
        )
    return Grid(group.title, ("Model", "s/epoch", "times PHC-1", "V100 s/epoch", "V100 times PHC-1"), tuple(rows))


def _count(text: str | None) -> float | None:
    """Read a printed number of parameters: 313K, 3.15M, 3,336K."""
    if text is None:
        return None
    return float(text[:-1].replace(",", "")) * {"K": 1e3, "M": 1e6}[text[-1]]


def _escape(text: str) -> str:
    marks = {"%": r"\%", "&": r"\&", "#": r"\#", "_": r"\_", "±": r"$\pm$", "†": r"$\dagger$", "*": r"$\ast$"}
    marks |= {"Δ": r"$\Delta$", "λ₂": r"$\lambda_2$"}
    for mark, command in marks.items():
        text = text.replace(mark, command)
    return text
