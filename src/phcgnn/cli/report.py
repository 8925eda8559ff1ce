"""``phcgnn report``: what finished runs say, as one page."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from phcgnn.cli.errors import failures
from phcgnn.cli.options import LogFile, Quiet, Verbose

__all__ = ["make_report", "report"]

_log = logging.getLogger("phcgnn")


def report(
    output: Annotated[
        Path,
        typer.Argument(help="The folder that `phcgnn reproduce -o` or `phcgnn train -o` wrote.", metavar="OUT"),
    ],
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Write report.html and figures from the runs in a folder; of a reproduction the tables too."""
    from phcgnn.cli.display import set_up_logging

    set_up_logging(quiet=quiet, verbose=verbose, log_file=log_file)
    with failures():
        written = make_report(output)
    typer.echo(json.dumps({"written": [str(path) for path in written]}))


def make_report(output: Path) -> tuple[Path, ...]:
    """Write the report of a folder; say on stderr what had to be left out."""
    from phcgnn.report.build import write_report

    written = write_report(output)
    if written.missing is not None:
        _log.warning("%s", written.missing)
    _log.info("%s: %d figures", written.files[0], sum(path.suffix == ".svg" for path in written.files))
    return written.files
