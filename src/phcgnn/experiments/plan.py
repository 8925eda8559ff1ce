"""What a command of the reproduction trains: every run with its settings, its folder, and how far it has come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phcgnn.errors import require_positive
from phcgnn.experiments.paper import PaperTable, Row
from phcgnn.experiments.settings import RunSettings, Settings, differences, merge, read_settings
from phcgnn.models import PHCGNN
from phcgnn.training.folder import RunFolder
from phcgnn.training.run import model_config

__all__ = ["EXTRA_FILE", "PlannedRun", "parameter_count", "plan", "runs_folder"]

EXTRA_FILE = "reproduce.json"
"""What a run of the reproduction holds beside any other run: training scores and the machine."""

TIMING_EPOCHS = 4
"""Of which the first, which may compile, is not counted."""

Status = Literal["to do", "interrupted", "finished"]


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a row of the paper.

    Attributes:
        row: What it is for.
        seed: Of everything random.
        folder: Where it goes.
        settings: All of them; two runs are the same if these are, wherever their data lie.
        timing: Whether only its seconds an epoch are wanted.
    """

    row: Row
    seed: int
    folder: Path
    settings: RunSettings
    timing: bool = False

    @property
    def name(self) -> str:
        """Its folder's name under ``runs``."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def status(self) -> Status:
        """How far it has come."""
        if RunFolder(self.folder).finished and (self.folder / EXTRA_FILE).is_file():
            return "finished"
        began = RunFolder(self.folder).checkpoint.exists() or RunFolder(self.folder).finished
        return "interrupted" if began else "to do"


def plan(
    table: PaperTable,
    out: Path,
    *,
    models: Sequence[str] = (),
    runs: int | None = None,
    epochs: int | None = None,
    root: str = "data",
    overrides: Sequence[Settings] = (),
) -> list[PlannedRun]:
    """Return the runs of a table, the rows in the paper's order, the seeds 0, 1, ... of each.

    Args:
        table: What to reproduce.
        out: The folder that ``runs`` is in, or will be.
        models: Which rows; all of them if empty.
        runs: Seeds a row. (default: as many as the paper averages; one for times)
        epochs: At most so many. (default: the preset's; four for times)
        root: Where the official files or packed stores are.
        overrides: Settings over those of every row.

    Raises:
        ValueError: An unknown model, or a run in the folder that was made with other settings.
    """
    if runs is not None:
        require_positive("--runs", runs=runs)
    short = TIMING_EPOCHS if table.timing and epochs is None else epochs
    cut: Settings = {} if short is None else {"training": {"epochs": short}}
    planned = []
    for row in table.select(models):
        wanted = runs if runs is not None else 1 if table.timing else row.group.runs
        for seed in range(wanted):
            here: Settings = {"data": {"root": root}, "training": {"seed": seed}}
            settings = RunSettings.build(merge([row.settings(), *overrides, cut, here]))
            folder = runs_folder(out) / (f"timing-{row.name}" if table.timing else row.name) / f"seed-{seed}"
            _require_same_settings(folder, settings)
            planned.append(PlannedRun(row, seed, folder, settings, table.timing))
    return planned


def runs_folder(out: Path) -> Path:
    """Return where the runs of an output folder are."""
    return out / "runs"


def parameter_count(settings: RunSettings) -> int:
    """Return the number of learnable parameters, from what the benchmark's adapter says of its data; nothing is read.

    >>> from phcgnn.experiments.settings import read_preset
    >>> parameter_count(RunSettings.build(read_preset("molhiv-phc4")))
    110909
    """
    from phcgnn.data.benchmarks import DATASETS

    assert settings.data.name is not None
    config = model_config(DATASETS[settings.data.name].metadata, settings.model)
    return PHCGNN.from_config(config, device="meta").num_parameters()


def _require_same_settings(folder: Path, settings: RunSettings) -> None:
    """Refuse to mix runs of different settings under one name."""
    path = folder / "config.toml"
    if not path.is_file():
        return
    found = RunSettings.build(read_settings(path))
    for name, theirs, ours in differences(found, settings):
        raise ValueError(
            f"{folder} was made with {name} = {json.dumps(theirs)}, but now it would be {json.dumps(ours)}; give the "
            "same options as then, or another --output."
        )
