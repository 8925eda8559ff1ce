"""Options that several verbs share, and settings from them: only what was given on the command line counts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "DataName",
    "DataPath",
    "Featuriser",
    "IdColumn",
    "LogFile",
    "OnInvalid",
    "Quiet",
    "Root",
    "SmilesColumn",
    "SplitColumn",
    "TargetColumns",
    "TaskName",
    "Verbose",
    "WeightColumn",
    "given",
    "names",
]

DataName = Annotated[str | None, typer.Option("--data", help="A benchmark's name, or a .phg file.")]
Root = Annotated[Path | None, typer.Option(help="Where a benchmark's official files are, or are put.")]
DataPath = Annotated[Path | None, typer.Option(help="A table: CSV, SMI or SDF, gzipped or not, or Parquet.")]
SmilesColumn = Annotated[str | None, typer.Option(help="(default: the one called smiles)")]
TargetColumns = Annotated[
    list[str] | None, typer.Option(help="What to predict: column names, separated by commas or given several times.")
]
TaskName = Annotated[str | None, typer.Option("--task", help="regression, classification or multiclass.")]
WeightColumn = Annotated[str | None, typer.Option(help="How much a row counts.")]
IdColumn = Annotated[str | None, typer.Option(help="A name for each molecule.")]
SplitColumn = Annotated[str | None, typer.Option(help="Says train, val or test of each row.")]
Featuriser = Annotated[
    str | None, typer.Option(help="What makes graphs of SMILES: ogb (default), zinc or zinc-extended.")
]
OnInvalid = Annotated[str | None, typer.Option(help="Rows that cannot be used: error lists them and stops, or skip.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more.")]
LogFile = Annotated[Path | None, typer.Option(help="Write the log here too.")]


def given(**values: Any) -> dict[str, Any]:
    """Return the options that were given; paths as text."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None and value != []
    }


def names(options: list[str] | None) -> list[str]:
    """Split comma-separated names; a backslash keeps a comma."""
    parts = [part for option in options or [] for part in option.replace("\\,", "\0").split(",")]
    return [part.replace("\0", ",").strip() for part in parts if part.strip()]
