"""The report of training runs: scores, curves, predictions, the molecules that go wrong, and the rules."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from phcgnn.errors import DataError
from phcgnn.experiments.comparison import Cell, Grid
from phcgnn.experiments.results import FinishedRun, finished_runs
from phcgnn.models.folder import ModelFolderError, load_model
from phcgnn.report.curves import NAMES, learning_curves
from phcgnn.report.molecules import can_read_molecules, draw_molecule, scaffold_errors, worst
from phcgnn.report.page import Section, note, page, table, table_head
from phcgnn.report.parity import prediction_figures
from phcgnn.report.picture import Picture
from phcgnn.report.predictions import Predictions, read_predictions
from phcgnn.report.sections import MISSING, Drawn, rules_section
from phcgnn.training.folder import RunFolder
from phcgnn.training.metrics import TASK_METRICS

__all__ = ["runs_in", "training_page"]

WORST = 12
SCAFFOLDS = 20

Models = Mapping[str, Sequence[FinishedRun]]


def runs_in(out: Path) -> dict[str, list[FinishedRun]]:
    """Return the finished runs of a folder by model: the folder's own, its seeds', or those of the folders in it.

    Raises:
        DataError: There are none.
    """
    if RunFolder(out).finished and (out / "metrics.csv").is_file():
        return {out.resolve().name: [FinishedRun(out)]}
    seeds = finished_runs(out)
    if seeds:
        return {out.resolve().name: seeds}
    found: dict[str, list[FinishedRun]] = {}
    for folder in sorted(out.iterdir()) if out.is_dir() else []:
        if RunFolder(folder).finished and (folder / "metrics.csv").is_file():
            found[folder.name] = [FinishedRun(folder)]
        elif folder.is_dir() and (runs := finished_runs(folder)):
            found[folder.name] = runs
    if not found:
        raise DataError(
            f"{out}: there is no finished run in it; give the folder that `phcgnn train -o` or `phcgnn reproduce -o` "
            "wrote, and finish a run that was stopped by the same command with --resume."
        )
    return found


def training_page(out: Path, drawn: Drawn) -> str:
    """Return the page of a run, of several seeds, or of several models.

    Args:
        out: The folder.
        drawn: Gets the figures.
    """
    models = runs_in(out)
    sections = [Section("scores", "Scores", tuple(_scores(models)))]
    if drawn.possible:
        sections.append(Section("curves", "Learning curves", (drawn.show(*_curves(models)),)))
    for number, (label, runs) in enumerate(models.items(), 1):
        of_model = "" if len(models) == 1 else f": {label}"
        prefix = "" if len(models) == 1 else f"model-{number}-"
        found = read_predictions(runs[0])
        if found is None:
            continue
        of_seed = f"Seed {runs[0].seed}, of {len(runs)}." if len(runs) > 1 else ""
        sections += _predictions(found, prefix, of_model, of_seed, drawn)
    rules = rules_section("rules", models, drawn)
    if rules is not None:
        sections.append(rules)
    names = ", ".join(models)
    return page(f"Training report: {names}", _subtitle(models), sections, None if drawn.possible else MISSING)


def _subtitle(models: Models) -> str:
    abouts = dict.fromkeys(_about(runs[0]) for runs in models.values())
    runs = sum(map(len, models.values()))
    return "; ".join([*(about for about in abouts if about), f"{runs} run{'s' if runs > 1 else ''}"]) + "."


def _about(run: FinishedRun) -> str:
    """Say what a run was trained on."""
    try:
        about = load_model(run.folder).metadata
    except ModelFolderError:
        return ""
    targets = [str(name) for name in about.get("targets", ())]
    shown = ", ".join(targets[:4]) + (f" and {len(targets) - 4} more" if len(targets) > 4 else "")
    return f"{about.get('data', 'data')}, {about.get('task', 'task')} of {shown}"


def _scores(models: Models) -> list[str]:
    parts = []
    for split in ("val", "test"):
        scored = {label: runs for label, runs in models.items() if split in runs[0].result["scores"]}
        if scored:
            parts.append(table(_score_table(split, scored)))
    return parts


def _score_table(split: str, models: Models) -> Grid:
    metrics = list(dict.fromkeys(name for runs in models.values() for name in runs[0].result["scores"][split]))
    columns = ("Model", "Runs", "Parameters", *map(_title, metrics), "Best epoch", "Seconds")
    rows = []
    for label, runs in models.items():
        scores = [[run.result["scores"][split].get(metric) for run in runs] for metric in metrics]
        parameters = int(runs[0].result["parameters"])
        rows.append(
            (
                Cell(label),
                Cell(str(len(runs)), len(runs)),
                Cell(f"{parameters:,}", parameters),
                *(_aggregate(values, 4, "ours" if place == 0 else "") for place, values in enumerate(scores)),
                _aggregate([run.result["best_epoch"] + 1 for run in runs], 0),
                _aggregate([run.result["seconds"] for run in runs], 0),
            )
        )
    return Grid({"val": "Validation", "test": "Test"}[split], columns, tuple(rows))


def _title(metric: str) -> str:
    name = NAMES.get(metric, metric)
    return name[0].upper() + name[1:]


def _aggregate(values: Sequence[float | None], digits: int, kind: str = "") -> Cell:
    there = [value for value in values if value is not None and value == value]
    if not there:
        return Cell("-")
    mean = statistics.mean(there)
    std = f" ± {statistics.stdev(there):.{digits}f}" if len(there) > 1 else ""
    return Cell(f"{mean:.{digits}f}{std}", mean, kind)


def _curves(models: Models) -> list[Picture | None]:
    columns = dict.fromkeys(name for runs in models.values() for row in runs[0].history for name in row)
    known = {f"val_{name}" for names in TASK_METRICS.values() for name in names}
    wanted = ["train_loss", *(column for column in columns if column in known), "lr"]
    titles = {"train_loss": "Training loss", "lr": "Learning rate"}
    return [
        learning_curves(
            f"curve-{column.replace('_', '-')}",
            titles.get(column) or f"Validation {NAMES.get(column[4:], column[4:])}",
            models,
            column,
        )
        for column in wanted
    ]


def _predictions(found: Predictions, prefix: str, of_model: str, of_seed: str, drawn: Drawn) -> list[Section]:
    sections = []
    remark = note(of_seed) if of_seed else ""
    if drawn.possible and (pictures := prediction_figures(found, prefix)):
        title = f"Predictions on the test set{of_model}"
        sections.append(Section(f"{prefix}predictions", title, (remark, drawn.show(*pictures))))
    if found.smiles is None:
        return sections
    if not can_read_molecules():
        text = "Scaffolds and drawings need RDKit: pip install 'phcgnn[chem]'."
        sections.append(Section(f"{prefix}molecules", f"Molecules{of_model}", (note(text), _worst(found, draw=False))))
        return sections
    sections.append(Section(f"{prefix}scaffolds", f"Error by scaffold{of_model}", (remark, _by_scaffold(found))))
    title = f"The worst molecules{of_model}"
    sections.append(Section(f"{prefix}molecules", title, (remark, _worst(found, draw=True))))
    return sections


def _by_scaffold(found: Predictions) -> str:
    lines = scaffold_errors(found)
    heads = ("Scaffold", "SMILES", "Molecules", f"Mean {found.error_name}", "Largest")
    head = "".join(table_head(name, "text" if name == "SMILES" else "") for name in heads)
    rows = []
    for line in lines[:SCAFFOLDS]:
        name = {None: "not readable", "": "no ring"}.get(line.scaffold, line.scaffold or "")
        drawing = draw_molecule(line.scaffold, 150, 90) if line.scaffold else None
        rows.append(
            f'<tr><td>{drawing or escape(name)}</td><td class="smiles"><code>{escape(line.scaffold or "")}</code></td>'
            f'<td data-value="{line.count}">{line.count}</td>'
            f'<td data-value="{line.mean!r}">{line.mean:.3f}</td>'
            f'<td data-value="{line.worst!r}">{line.worst:.3f}</td></tr>'
        )
    several = sum(line.count > 1 for line in lines)
    text = (
        f"Bemis-Murcko scaffolds: {len(lines)} in the test set, {several} of them of more than one molecule; "
        f"the {min(len(lines), SCAFFOLDS)} most frequent are shown."
    )
    return (
        f'{note(text)}<div class="scroll" role="region" tabindex="0" aria-label="Error by scaffold">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _worst(found: Predictions, *, draw: bool) -> str:
    assert found.smiles is not None
    errors, items = found.errors, []
    for row in worst(found, WORST):
        smiles = found.smiles[row]
        picture = (draw_molecule(smiles) or "") if draw else ""
        items.append(
            f"<li>{picture}<b>{escape(found.names[row])}</b><br>{escape(found.error_name)} {errors[row]:.3f}<br>"
            f"{escape(_said(found, row))}<br><code>{escape(smiles)}</code></li>"
        )
    return f'<ul class="molecules">{"".join(items)}</ul>'


def _said(found: Predictions, row: int) -> str:
    """Return what is true of a molecule and what was predicted; of several targets the one that errs most."""
    truth, predicted = found.truth[row], found.predicted[row]
    if found.task == "multiclass":
        return f"{found.targets[int(truth[0])]}, predicted {found.targets[int(predicted.argmax())]}"
    target = int(np.nanargmax(found.apart[row]))
    name = f"{found.targets[target]}: " if len(truth) > 1 else ""
    return f"{name}true {truth[target]:.4g}, predicted {predicted[target]:.4g}"
