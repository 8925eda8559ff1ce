"""``phcgnn data``: pack a benchmark into one file, and look into such a file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from phcgnn.errors import DataError

if TYPE_CHECKING:
    from phcgnn.data import GraphStore

__all__ = ["app"]

app = typer.Typer(help="Data sets packed into one file.", no_args_is_help=True)


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A benchmark, e.g. zinc; a name that is none lists them all.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .phg file to write.")],
    root: Annotated[Path, typer.Option(help="Where the official files are, or are put.")] = Path("data"),
    any_size: Annotated[bool, typer.Option(help="Accept splits of another size than the published one.")] = False,
) -> None:
    """Read a benchmark by its official loader, fetching what is missing, and pack it."""
    from phcgnn.cli.display import DataDisplay
    from phcgnn.data.benchmarks import DATASETS  # here, so that other verbs start fast

    try:
        dataset = DATASETS[name]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error
    if output.is_dir() or not output.absolute().parent.is_dir():
        what = "is a folder" if output.is_dir() else f"cannot be written: there is no folder {output.parent}"
        raise typer.BadParameter(f"{output} {what}; give the path of a file.", param_hint="--output")
    try:
        with DataDisplay() as bar:
            store = dataset.load(root, check_sizes=not any_size, progress=bar)
            bar("writing")
            store.save(output)
    except (DataError, OSError) as error:
        _fail(error)
    typer.echo(f"{output}: {store!r}")


@app.command()
def info(
    path: Annotated[Path, typer.Argument(metavar="STORE", help="A .phg file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a packed file and print what is in it."""
    from phcgnn.data import GraphStore

    try:
        store = GraphStore.load(path)
    except (DataError, OSError) as error:
        _fail(error)
    facts = _facts(store, path)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    table = Table(show_header=False, box=None)
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), _shown(value))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(table)


@app.command()
def example(
    output: Annotated[Path, typer.Option("--output", "-o", help="The CSV file to write.")],
    rows: Annotated[int | None, typer.Option(min=1, help="Only so many molecules. (default: all, about 5,000)")] = None,
) -> None:
    """Write a table to try things on: molecules that RDKit brings along, with their penalised logP."""
    import csv

    from phcgnn.cli.display import DataDisplay
    from phcgnn.data.benchmarks.nci import labelled_molecules
    from phcgnn.files import write_text

    if output.is_dir() or not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"{output} is a folder, or its folder is missing.", param_hint="--output")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "smiles", "plogp"])
    try:
        with DataDisplay() as bar:
            for number, (name, smiles, value) in enumerate(labelled_molecules(rows)):
                bar("labelling", number, rows or 4991)
                writer.writerow([name, smiles, f"{value:.4f}"])
        write_text(output, text.getvalue())
    except (DataError, ImportError, OSError) as error:
        _fail(error)
    typer.echo(f"{output}: {len(text.getvalue().splitlines()) - 1:,} molecules with id, smiles and plogp")


def _facts(store: GraphStore, path: Path) -> dict[str, Any]:
    metadata = json.loads(store.metadata.to_json())
    graphs = len(store)
    counts = {"graphs": graphs, "nodes": len(store.x), "edges": store.edge_index.shape[1]}
    means = {f"{name}_a_graph": round(counts[name] / max(graphs, 1), 2) for name in ("nodes", "edges")}
    return {
        **{key: metadata[key] for key in ("name", "task", "metric", "num_classes", "level", "featuriser")},
        **counts,
        **means,
        **{key: metadata[key] for key in ("node_features", "edge_features", "targets")},
        "splits": {name: len(split) for name, split in store.splits.items()},
        "holds": [name for name in ("y", "ids", "smiles", "pos", "weights") if getattr(store, name) is not None],
        "megabytes": round(path.stat().st_size / 1e6, 2),
    }


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {count:,}" for key, count in value.items()) or "none"
    if isinstance(value, list):
        more = f", ... ({len(value)})" if len(value) > 12 else ""
        return ", ".join(str(item) for item in value[:12]) + more or "none"
    if isinstance(value, int):
        return f"{value:,}"
    return "none" if value is None else str(value)


def _fail(error: Exception) -> NoReturn:
    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(1)
