"""Makes a folder's report anew from the runs in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phcgnn.errors import DataError
from phcgnn.experiments.comparison import TABLES
from phcgnn.experiments.reproduce import MANIFEST
from phcgnn.files import write_text
from phcgnn.report.picture import can_draw
from phcgnn.report.reproduction import reproduction_page
from phcgnn.report.sections import MISSING, Drawn
from phcgnn.report.training import training_page
from phcgnn.training.folder import FIGURES, REPORT

__all__ = ["FIGURES", "REPORT", "Written", "write_report"]


@dataclass(frozen=True)
class Written:
    """What a report consists of.

    Attributes:
        files: The page, the tables, the figures.
        missing: What is left out and why, for the reader of the log; None if nothing is.
    """

    files: tuple[Path, ...]
    missing: str | None


def write_report(out: str | Path) -> Written:
    """Write ``report.html`` and ``figures`` from the finished runs of a folder; a reproduction's tables too.

    Without matplotlib the page has its tables and no figures.

    Args:
        out: What ``phcgnn reproduce -o`` or ``phcgnn train -o`` wrote: one run, several seeds, or folders of runs.

    Raises:
        DataError: There is no finished run in it.
    """
    out = Path(out)
    if not out.is_dir():
        raise DataError(f"{out}: there is no such folder; give what `phcgnn train -o` or `phcgnn reproduce -o` wrote.")
    reproduced = (out / MANIFEST).is_file()
    drawn = Drawn(can_draw())
    text = reproduction_page(out, drawn) if reproduced else training_page(out, drawn)
    folder = out / FIGURES
    if (out / REPORT).is_file():  # else these are somebody else's
        for old in folder.glob("*.svg"):
            old.unlink()
    if drawn:
        folder.mkdir(exist_ok=True)
    for picture in drawn:
        write_text(folder / f"{picture.name}.svg", picture.file())
    write_text(out / REPORT, text)
    tables = [out / name for name in TABLES if reproduced and (out / name).is_file()]
    missing = None if drawn.possible else MISSING
    return Written((out / REPORT, *tables, *(folder / f"{picture.name}.svg" for picture in drawn)), missing)
