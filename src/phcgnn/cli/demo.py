"""``phcgnn demo``: the first five minutes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phcgnn.cli.errors import failures, usage
from phcgnn.cli.options import LogFile, Quiet, Verbose

if TYPE_CHECKING:
    from rich.table import Table

    from phcgnn.experiments.demo import DemoRun

__all__ = ["demo"]

MOLECULES = {"ethanol": "CCO", "aspirin": "CC(=O)Oc1ccccc1C(=O)O", "caffeine": "Cn1cnc2c1c(=O)n(C)c(=O)n2C"}


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Gets a run folder for each network.")] = Path(
        "runs/demo"
    ),
    epochs: Annotated[int | None, typer.Option(min=1, help="(default: about two minutes' worth on two cores)")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Train PHC-1 and PHC-4 on RDKit's own molecules, compare them, predict with one, say what to try next."""
    from rich.console import Console

    from phcgnn.cli.display import TrainingDisplay, set_up_logging
    from phcgnn.data.benchmarks import DATASETS
    from phcgnn.experiments.demo import train_demo

    with usage():
        if output.exists() and not output.is_dir():
            raise ValueError(f"--output {output} is a file; give a folder.")
    console = set_up_logging(quiet=quiet, verbose=verbose, log_file=log_file)
    with failures():
        with console.status("making graphs of RDKit's NCI molecules"):
            store = DATASETS["nci"].load()
        runs = train_demo(
            store,
            output,
            lambda name, settings: TrainingDisplay(console, settings.training.epochs, "mae", f"{name}  "),
            epochs=epochs,
        )
    Console().print(_table(runs))
    _predict(runs[-1])
    _say_what_next(runs[-1])


def _table(runs: list[DemoRun]) -> Table:
    from rich.table import Table

    table = Table(title="Penalised logP: the same network with n = 1 and n = 4")
    table.add_column("network")
    for column in ("parameters", "validation MAE", "test MAE", "seconds an epoch"):
        table.add_column(column, justify="right")
    for run in runs:
        result = run.result
        table.add_row(
            run.name.upper(),
            f"{result.parameters:,}",
            f"{result.scores['val']['mae']:.3f}",
            f"{result.scores['test']['mae']:.3f}",
            f"{result.seconds / max(result.epochs, 1):.1f}",
        )
    return table


def _predict(run: DemoRun) -> None:
    """Predict a few molecules by the command that the user would type."""
    typed = ["predict", "--model", str(run.folder), "-i", "-", "-q"]
    table = "name,smiles\n" + "".join(f"{name},{smiles}\n" for name, smiles in MOLECULES.items())
    typer.echo(f"\n$ phcgnn {shlex.join(typed)} < molecules.csv")
    found = subprocess.run(
        [sys.executable, "-m", "phcgnn", *typed], input=table, capture_output=True, text=True, check=False
    )
    if found.returncode:
        typer.echo(found.stderr, err=True)
        raise typer.Exit(1)
    typer.echo(found.stdout)


def _say_what_next(run: DemoRun) -> None:
    typer.echo(
        "What next?\n"
        f"  phcgnn evaluate --model {run.folder} --data nci                 scores as one JSON object\n"
        "  phcgnn data example -o molecules.csv                          a table to try things on\n"
        "  phcgnn train --data-path molecules.csv --target-columns plogp -o runs/mine\n"
        f"  phcgnn predict --model {run.folder} -i molecules.csv -o predictions.csv\n"
        "  phcgnn train --help                                           everything that can be set"
    )
