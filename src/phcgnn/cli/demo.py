"""``phcgnn demo``: the first five minutes."""

from __future__ import annotations

import shlex
import shutil
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
    epochs: Annotated[int | None, typer.Option(min=1, help="(default: up to two minutes' worth on two cores)")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Train PHC-1 and PHC-4 on RDKit's own molecules, compare them, predict with one, say what to try next."""
    from rich.console import Console

    from phcgnn.cli.display import TrainingDisplay, set_up_logging
    from phcgnn.data.benchmarks import DATASETS
    from phcgnn.experiments.demo import errors_of_the_mean, train_demo

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
    Console().print(_table(runs, errors_of_the_mean(store)))
    _predict(runs[-1])
    _say_what_next(runs[-1])


def _table(runs: list[DemoRun], of_the_mean: dict[str, float]) -> Table:
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
    table.add_section()
    table.add_row("the mean, always", "1", f"{of_the_mean['val']:.3f}", f"{of_the_mean['test']:.3f}", "")
    return table


def _predict(run: DemoRun) -> None:
    """Predict a few molecules by the command that the user would type."""
    typed = ["predict", "--model", str(run.folder), "-i", "-", "-q"]
    table = "name,smiles\n" + "".join(f"{name},{smiles}\n" for name, smiles in MOLECULES.items())
    typer.echo(f"\n$ {_command()} {shlex.join(typed)} < molecules.csv")
    found = subprocess.run(
        [sys.executable, "-m", "phcgnn", *typed], input=table, capture_output=True, text=True, check=False
    )
    if found.returncode:
        typer.echo(found.stderr, err=True)
        raise typer.Exit(1)
    typer.echo(found.stdout)


def _say_what_next(run: DemoRun) -> None:
    command = _command()
    lines = (
        (f"evaluate --model {run.folder} --data nci", "scores as one JSON object"),
        ("data example -o molecules.csv", "a table to try things on"),
        ("train --data-path molecules.csv --target-columns plogp -o runs/mine", "a model of your own"),
        (f"predict --model {run.folder} -i molecules.csv -o predictions.csv", "a column a target"),
        ("train --help", "everything that can be set"),
    )
    typer.echo("What next?" + "".join(f"\n  # {about}\n  {command} {line}" for line, about in lines))


def _command() -> str:
    """Return what to type for this command: its name where the shell finds it, else where it lies."""
    if shutil.which("phcgnn"):
        return "phcgnn"
    script = Path(sys.executable).with_name("phcgnn")
    if not script.exists():
        return f"{sys.executable} -m phcgnn"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)
