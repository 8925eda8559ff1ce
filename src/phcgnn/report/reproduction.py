"""The report of a reproduction: the paper's numbers beside ours, and every figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phcgnn.experiments.comparison import compare, notes
from phcgnn.experiments.paper import Group, PaperTable
from phcgnn.experiments.reproduce import summarise
from phcgnn.experiments.results import RowResult
from phcgnn.report.boxes import split_boxes
from phcgnn.report.curves import learning_curves
from phcgnn.report.page import Section, note, page, remarks, table
from phcgnn.report.picture import Picture
from phcgnn.report.sections import MISSING, Drawn, rules_section
from phcgnn.report.sizes import parameters_against_score

__all__ = ["reproduction_page"]


def reproduction_page(out: Path, drawn: Drawn) -> str:
    """Write the tables of a reproduction and return its page.

    Args:
        out: What ``phcgnn reproduce -o`` wrote.
        drawn: Gets the figures.
    """
    tables = summarise(out)
    sections = [_table(one, results, drawn) for one, results in tables]
    for group, results in _models(tables).items():
        found = rules_section(f"rules-{group.name}", {result.row.label: result.runs for result in results}, drawn)
        if found is not None:
            sections.append(Section(found.name, f"{found.title}: {group.title}", found.parts))
    runs = sum(len(result.runs) for _, results in tables for result in results)
    subtitle = f"{runs} finished runs, beside Parameterized Hypercomplex Graph Neural Networks as printed."
    titles = ", ".join(one.name for one, _ in tables)
    return page(f"Reproduction: {titles}", subtitle, sections, None if drawn.possible else MISSING)


def _models(tables: Sequence[tuple[PaperTable, Sequence[RowResult]]]) -> dict[Group, list[RowResult]]:
    """Return the rows that have runs, by data set and each once; tables share rows."""
    found: dict[Group, dict[str, RowResult]] = {}
    for one, results in tables:
        for result in results:
            if result.runs and not one.timing:
                found.setdefault(result.row.group, {}).setdefault(result.row.name, result)
    return {group: list(rows.values()) for group, rows in found.items()}


def _table(one: PaperTable, results: Sequence[RowResult], drawn: Drawn) -> Section:
    grids = {grid.title: grid for grid in compare(one, results)}
    parts = [note(f"The paper's {one.source}.")]
    if not any(result.runs for result in results):
        parts.append(note("No run is finished yet."))
    for group in one.groups:
        if group.title not in grids:
            continue
        parts.append(table(grids[group.title]))
        if drawn.possible and not one.timing:
            parts.append(drawn.show(*_curves(one, group, results)))
            boxes = split_boxes(f"{one.name}-{group.name}-boxes", one, group, results)
            name = f"{one.name}-{group.name}-parameters"
            parts.append(drawn.show(boxes, parameters_against_score(name, group, grids[group.title], results)))
    parts.append(remarks(notes(one, results)))
    return Section(one.name, f"{one.name}: {one.title}", tuple(parts))


def _curves(one: PaperTable, group: Group, results: Sequence[RowResult]) -> list[Picture | None]:
    models = {result.row.label: result.runs for result in results if result.row.group == group and result.runs}
    if not models:
        return []
    column = f"val_{next(iter(models.values()))[0].metric}"
    name, factor = f"{one.name}-{group.name}", 100.0 if group.percent else 1.0
    return [
        learning_curves(f"{name}-validation", f"{group.title}: validation", models, column, factor=factor),
        learning_curves(f"{name}-training", f"{group.title}: training", models, "train_loss"),
    ]
