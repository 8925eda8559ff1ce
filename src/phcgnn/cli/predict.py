"""``phcgnn predict``: a table of molecules in, the same table with predictions out."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from phcgnn.cli.errors import failures, usage
from phcgnn.cli.options import LogFile, Quiet, SmilesColumn, Verbose

__all__ = ["predict"]

_log = logging.getLogger("phcgnn")


def predict(
    model: Annotated[Path, typer.Option(help="What `phcgnn train -o` wrote; with several runs, their mean.")],
    input_: Annotated[str, typer.Option("--input", "-i", help="CSV, Parquet, SMI or SDF; - reads standard input.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The CSV to write; - writes standard output.")] = "-",
    smiles_column: SmilesColumn = None,
    on_invalid: Annotated[
        str, typer.Option(help="Rows that cannot be predicted: keep (say why), skip, or error (stop).")
    ] = "keep",
    resume: Annotated[bool, typer.Option(help="Go on where an interrupted output stopped.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Molecules a forward pass.")] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that make graphs. (default: all cores)")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Predict a column a target for every row; the input's columns and their order stay."""
    from phcgnn.cli.display import set_up_logging
    from phcgnn.inference.predictor import Predictor
    from phcgnn.inference.tables import predict_table

    with usage():
        if on_invalid not in ("keep", "skip", "error"):
            raise ValueError(f"--on-invalid must be keep, skip or error, got {on_invalid!r}.")
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"--device must be auto, cpu or cuda, got {device!r}.")
        if resume and (output == "-" or on_invalid == "skip"):
            raise ValueError(
                "--resume needs an output file with a line a row: no standard output, no --on-invalid skip."
            )
        if input_ != "-" and not Path(input_).is_file():
            raise FileNotFoundError(f"--input {input_}: there is no such file.")
        if output != "-" and not Path(output).absolute().parent.is_dir():
            raise FileNotFoundError(f"--output {output}: there is no folder {Path(output).parent}.")
        if input_ != "-" and output != "-" and Path(output).exists() and Path(output).samefile(input_):
            raise ValueError(f"--output {output} is the input; give another file.")
    console = set_up_logging(quiet=quiet, verbose=verbose, log_file=log_file)
    with failures(batch_size=batch_size):
        predictor = Predictor.load(model, device=None if device == "auto" else device, batch_size=batch_size)
        start = time.monotonic()
        with console.status("predicting") as status:
            shown = start

            def progress(rows: int) -> None:
                nonlocal shown
                now = time.monotonic()
                rate = f"{rows:,} molecules, {rows / max(now - start, 1e-9):,.0f} a second"
                if console.is_terminal:
                    status.update(rate)
                elif now - shown >= 10:
                    shown = now
                    _log.info(rate)

            report = predict_table(
                predictor,
                input_,
                sys.stdout if output == "-" else output,
                smiles_column=smiles_column,
                on_invalid=on_invalid,  # type: ignore[arg-type]
                resume=resume,
                workers=workers,
                progress=progress,
            )
        seconds = time.monotonic() - start
        invalid = f", {report.invalid:,} could not be predicted" if report.invalid else ""
        _log.info(
            f"{report.rows:,} molecules in {seconds:.1f} s ({report.rows / max(seconds, 1e-9):,.0f} a second){invalid}"
        )
