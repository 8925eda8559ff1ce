"""Our numbers beside the paper's, as a table of texts that Markdown, LaTeX and HTML only have to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phcgnn.experiments.paper import Group, OtherMethod, PaperTable
from phcgnn.experiments.results import RowResult
from phcgnn.training.folder import RunFolder

__all__ = ["Cell", "Grid", "compare", "notes", "to_latex", "to_markdown", "write_results"]

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
        found.append(f"Trained on: {', '.join(devices)}.")
    found += _other_sizes(results)
    cut = set[tuple[int, int]]()
    for result in results:
        allowed = result.row.settings()["training"]["epochs"]
        cut |= {
            (run.settings.training.epochs, allowed)
            for run in result.runs
            if run.settings is not None and run.settings.training.epochs < allowed
        }
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
    """Say which data were not of the published size, by a run of each."""
    from phcgnn.data.benchmarks import DATASETS

    first = {result.row.preset.partition("-")[0]: result.runs[0] for result in reversed(results) if result.runs}
    return [
        f"The {name} data were not of the published size, but {', '.join(f'{n:,} {s}' for s, n in run.sizes.items())}; "
        "such scores say nothing about the paper's."
        for name, run in sorted(first.items())
        if run.sizes and run.sizes != dict(DATASETS[name].sizes)
    ]


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
