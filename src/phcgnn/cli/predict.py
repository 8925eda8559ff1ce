"""``phcgnn predict``: a table of molecules in, the same table with predictions out."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer

from phcgnn.cli.errors import fail, failures, usage
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted output stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Molecules a forward pass. (default: 32 on a CPU, 512 on a GPU)")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that make graphs. (default: all cores)")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Predict a column a target for every row; the input's columns and their order stay."""
    from phcgnn.cli.display import set_up_logging
    from phcgnn.inference.predictor import Predictor
    from phcgnn.inference.tables import predict_table, require_apart, require_output

    with usage():
        if on_invalid not in ("keep", "skip", "error"):
            raise ValueError(f"--on-invalid must be keep, skip or error, got {on_invalid!r}.")
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"--device must be auto, cpu or cuda, got {device!r}.")
        if input_ != "-" and not Path(input_).is_file():
            raise FileNotFoundError(f"--input {input_}: there is no such file.")
        target = _standard_output() if output == "-" else output
        require_apart(input_, target)
        require_output(target, resume=resume, overwrite=overwrite)
    console = set_up_logging(quiet=quiet, verbose=verbose, log_file=log_file)
    with failures(batch_size=batch_size), _stopped(to_file=output != "-"):
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
                target,
                smiles_column=smiles_column,
                on_invalid=on_invalid,  # type: ignore[arg-type]
                resume=resume,
                overwrite=overwrite,
                workers=workers,
                progress=progress,
            )
        seconds = time.monotonic() - start
        resumed = f" behind the {report.resumed:,} that were there" if resume else ""
        invalid = f", {report.invalid:,} could not be predicted" if report.invalid else ""
        rate = f"{report.rows / max(seconds, 1e-9):,.0f} a second"
        _log.info(f"{report.rows:,} molecules{resumed} in {seconds:.1f} s ({rate}){invalid}")


def _standard_output() -> TextIO:
    """Return standard output, in UTF-8 and with the line ends that are written, whatever the locale says."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="")
    return sys.stdout


@contextlib.contextmanager
def _stopped(*, to_file: bool) -> Iterator[None]:
    """Leave with a message on Ctrl-C and SIGTERM, and quietly where the reader of a pipe has gone."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        fail("stopped; the same command with --resume goes on from there." if to_file else "stopped.")
    except OSError as error:
        if not to_file:
            _give_up_output()
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(1) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _give_up_output() -> None:
    """Throw away what standard output cannot take; Python would try again at the end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
