"""``phcgnn``: gathers the verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from phcgnn._version import __version__
from phcgnn.cli import algebra, bench, data, demo, doctor, evaluate, predict, released, report, reproduce, train

__all__ = ["app"]

app = typer.Typer(
    name="phcgnn",
    help="Parameterized hypercomplex graph neural networks.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(algebra.app, name="algebra")
app.add_typer(data.app, name="data")
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("reproduce", cls=reproduce.SeveralModels)(reproduce.reproduce)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
app.command("doctor")(doctor.doctor)
app.command("import-released")(released.import_released)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Parameterized hypercomplex graph neural networks."""
