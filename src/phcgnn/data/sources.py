"""One way to all data: a benchmark by name, a packed store, or a table of molecules."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from phcgnn.configuration import FrozenConfig
from phcgnn.data.graphs import GraphStore
from phcgnn.data.metadata import Task
from phcgnn.data.progress import Progress, silent

if TYPE_CHECKING:
    from phcgnn.data.molecules import BadRow

__all__ = ["DataSettings", "OpenedData", "open_data"]


@dataclass(frozen=True, kw_only=True)
class DataSettings(FrozenConfig):
    """Where data come from, as a frozen value that files can hold. Give ``name`` or ``path``.

    Args:
        name: A benchmark, or a ``.phg`` file.
        root: Where the benchmarks' official files are, or are put.
        path: A table: CSV, Parquet, SMI or SDF.
        smiles_column: (default: the one called smiles)
        target_columns: What is predicted.
        task: ``regression``, ``classification`` or ``multiclass``.
        weight_column: How much a row counts.
        id_column: A name for each molecule.
        split_column: train, val or test.
        featuriser: What makes graphs of SMILES: a name, or a name and version as a model records them (``ogb/1``).
        split: ``scaffold``, ``random``, ``stratified``, ``butina`` or ``kmeans``.
        fractions: Shares of training, validation and test.
        split_seed: Of a random split.
        split_file: A ``splits.json`` to use instead; its numbers, from 0, are of the table's rows, bad ones included,
            or of the rows that are left where its ``total`` says so.
        on_invalid: ``error`` stops at rows that cannot be used and lists them all; ``skip`` goes on without them.
    """

    name: str | None = None
    root: str = "data"
    path: str | None = None
    smiles_column: str | None = None
    target_columns: tuple[str, ...] = ()
    task: Task = "regression"
    weight_column: str | None = None
    id_column: str | None = None
    split_column: str | None = None
    featuriser: str = "ogb"
    split: str = "scaffold"
    fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
    split_seed: int = 0
    split_file: str | None = None
    on_invalid: Literal["error", "skip"] = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is not None and self.path is not None:
            raise ValueError(
                f"DataSettings: `name` ({self.name}) and `path` ({self.path}) both say where data are; give one."
            )
        if self.name is not None and (given := [one for one in _OF_TABLES if getattr(self, one) != _DEFAULTS[one]]):
            raise ValueError(
                f"DataSettings: {', '.join(f'`{one}`' for one in given)} would do nothing, since {self.name} comes "
                "with its own columns, features and split; leave it out, or give a table by `path` (--data-path)."
            )
        if self.split_file is not None and self.split_column is not None:
            raise ValueError("DataSettings: `split_file` and `split_column` both split the data; give one.")
        if len(self.fractions) != 3 or min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-6:
            raise ValueError(
                f"DataSettings: `fractions` must be three shares of at least 0 that add up to 1, got {self.fractions}."
            )

    def require_source(self) -> None:
        """Refuse settings that say nothing of where the data are, or lack what a table needs."""
        if self.name is None and self.path is None:
            raise ValueError("no data: give --data NAME (or a .phg file) or --data-path TABLE.")
        if self.path is not None and not self.target_columns:
            raise ValueError("a table needs --target-columns: the names of the columns to predict.")
        if self.path is not None:
            from phcgnn.data.molecules import SPLITTERS, featuriser  # needs rdkit

            _ = SPLITTERS[self.split], featuriser(self.featuriser)
        if self.split_file is not None and not Path(self.split_file).is_file():
            raise FileNotFoundError(f"--split-file {self.split_file}: there is no such file.")


_OF_TABLES = (
    *("smiles_column", "target_columns", "weight_column", "id_column", "featuriser"),
    *("split_column", "split", "fractions", "split_seed", "split_file"),
)
_DEFAULTS = {one.name: one.default for one in fields(DataSettings)}


class OpenedData(NamedTuple):
    """A store, and the rows of its table that were left out."""

    store: GraphStore
    bad: tuple[BadRow, ...] = ()


def open_data(settings: DataSettings, *, split: bool = True, progress: Progress = silent) -> OpenedData:
    """Open data, wherever they are.

    Args:
        settings: Where, and how to read it.
        split: Whether a table is split; otherwise all of it is the split ``all``.
        progress: Told how far it is.

    Raises:
        DataError: The data cannot be used; for a table with every bad row listed.
    """
    settings.require_source()
    if settings.path is not None:
        return _open_table(settings, settings.path, split, progress)
    assert settings.name is not None
    if settings.name.endswith(".phg") or Path(settings.name).is_file():
        return OpenedData(GraphStore.load(settings.name))
    from phcgnn.data.benchmarks import DATASETS  # the official loaders take a while to import

    return OpenedData(DATASETS[settings.name].load(settings.root, progress=progress))


def _open_table(settings: DataSettings, path: str, split: bool, progress: Progress) -> OpenedData:
    from phcgnn.data.molecules import load_split, make_split, prepare_table, read_table

    table = read_table(
        path,
        target_columns=settings.target_columns,
        smiles_column=settings.smiles_column,
        task=settings.task,
        weight_column=settings.weight_column,
        id_column=settings.id_column,
        split_column=settings.split_column,
        on_invalid="defer",
    )
    prepared = prepare_table(table, by=settings.featuriser, on_invalid=settings.on_invalid, progress=progress)
    table = prepared.table
    if not split:
        store = prepared.store(splits={})
        store.splits["all"] = torch.arange(len(store))
    elif settings.split_column is not None:
        store = prepared.store()
    elif settings.split_file is not None:
        store = prepared.store(splits=load_split(settings.split_file, total=table.total, rows=table.rows))
    else:
        store = prepared.store(
            splits=make_split(
                settings.split,
                smiles=table.smiles,
                y=table.y,
                fractions=settings.fractions,  # type: ignore[arg-type]
                seed=settings.split_seed,
            )
        )
    return OpenedData(store, table.bad)
