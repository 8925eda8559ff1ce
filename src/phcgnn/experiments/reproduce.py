"""One command for a table of the paper: plan, train, compare."""

from __future__ import annotations

import json
from pathlib import Path

from phcgnn.errors import DataError
from phcgnn.experiments.comparison import write_results
from phcgnn.experiments.paper import PaperTable, paper_tables
from phcgnn.experiments.results import RowResult, collect, results_rows
from phcgnn.files import write_text

__all__ = ["MANIFEST", "note_table", "reproduced_tables", "summarise"]

MANIFEST = "reproduction.json"
"""Says which tables an output folder holds; several tables may share one folder, and its runs."""


def note_table(out: Path, table: PaperTable) -> None:
    """Add a table to those that a folder holds."""
    names = [one.name for one in reproduced_tables(out)] if (out / MANIFEST).is_file() else []
    if table.name not in names:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / MANIFEST, json.dumps({"schema": 1, "tables": [*names, table.name]}, indent=2) + "\n")


def reproduced_tables(out: Path) -> list[PaperTable]:
    """Return the tables that a folder holds.

    Raises:
        DataError: The folder is no reproduction's.
    """
    path = out / MANIFEST
    if not path.is_file():
        raise DataError(f"{out}: there is no {MANIFEST} in it; give what `phcgnn reproduce -o` wrote.")
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["tables"]
        return [paper_tables()[name] for name in names]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); delete it and run `phcgnn reproduce` again.") from error


def summarise(out: Path) -> list[tuple[PaperTable, list[RowResult]]]:
    """Write ``results.csv``, ``table.md`` and ``table.tex`` from the runs that are finished; return what is in them."""
    tables = [(table, collect(table, out)) for table in reproduced_tables(out)]
    write_results(out, tables, [row for table, results in tables for row in results_rows(table, results)])
    return tables
