"""``phcgnn algebra``: look into the multiplication tables."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from phcgnn.algebra import ALGEBRAS, Algebra

__all__ = ["app"]

app = typer.Typer(help="Multiplication tables of the known algebras.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """Print the names that `show` understands."""
    for name in ALGEBRAS:
        typer.echo(name)
    for family in ("cayley-dickson:N", "clifford:P,Q,R", "cyclic:N"):
        typer.echo(family)


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name, or cayley-dickson:32, clifford:3,0,1, cyclic:6.")]) -> None:
    """Print an algebra's multiplication table and its laws: row times column."""
    try:
        algebra = Algebra.named(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error
    console = Console()
    columns = max((len(cell) for row in algebra.table() for cell in row), default=1) + 3
    if not console.is_terminal:  # a pipe has no width: never wrap a table there
        console.width = max(console.width, (algebra.n + 1) * columns)
    table = Table(title=f"{algebra.name} (n={algebra.n})", title_justify="left", show_lines=False)
    table.add_column("·", justify="right", style="bold")
    for symbol in algebra.basis:
        table.add_column(symbol, justify="right")
    for symbol, row in zip(algebra.basis, algebra.table(), strict=True):
        table.add_row(symbol, *(Text(cell, style="red" if cell.startswith("-") else "") for cell in row))
    console.print(table)
    for law, holds in algebra.laws().items():
        console.print(Text(f"{'yes' if holds else 'no':>4}  {law}", style="green" if holds else "dim"))
