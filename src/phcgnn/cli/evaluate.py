"""``phcgnn evaluate``: scores of a model on data with known targets, as one JSON object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from phcgnn.cli.errors import failures, usage
from phcgnn.cli.options import (
    DataName,
    DataPath,
    LogFile,
    OnInvalid,
    Quiet,
    Root,
    SmilesColumn,
    SplitColumn,
    TargetColumns,
    Verbose,
    given,
    names,
)

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[Path, typer.Option(help="What `phcgnn train -o` wrote; several runs are averaged.")],
    data: DataName = None,
    root: Root = None,
    data_path: DataPath = None,
    smiles_column: SmilesColumn = None,
    target_columns: TargetColumns = None,
    split_column: SplitColumn = None,
    split: Annotated[
        str | None, typer.Option(help="Of a benchmark or store (default: test); of a table with --split-column.")
    ] = None,
    on_invalid: OnInvalid = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    batch_size: Annotated[int, typer.Option(min=1, help="Graphs a forward pass.")] = 512,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Score a model. A table is scored whole unless --split-column says which rows are which."""
    from phcgnn.cli.display import set_up_logging
    from phcgnn.data.sources import DataSettings, open_data
    from phcgnn.inference.evaluate import evaluate as score
    from phcgnn.inference.predictor import Predictor, model_folders

    with usage():
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"--device must be auto, cpu or cuda, got {device!r}.")
        if (data is None) == (data_path is None):
            raise ValueError("give either --data or --data-path.")
        if data_path is not None and not data_path.is_file():
            raise FileNotFoundError(f"--data-path {data_path}: there is no such file.")
    set_up_logging(quiet=quiet, verbose=verbose, log_file=log_file)
    with failures(batch_size=batch_size):
        folders = model_folders(model)
        settings = given(
            name=data,
            root=root,
            path=data_path,
            smiles_column=smiles_column,
            target_columns=names(target_columns),
            split_column=split_column,
            on_invalid=on_invalid,
        )
        if data_path is not None:
            about = Predictor(folders, device="cpu")
            settings |= {"task": about.task, "featuriser": about.featuriser}
            settings.setdefault("target_columns", list(about.targets))
        opened = open_data(DataSettings.from_dict(settings), split=split_column is not None)
        part = split or ("all" if data_path is not None and split_column is None else "test")
        if part not in opened.store.splits:
            raise ValueError(
                f"there is no split {part!r} in {opened.store.metadata.name}; it has "
                f"{', '.join(opened.store.splits) or 'none'}."
            )
        result = score(folders, opened.store, part, device=None if device == "auto" else device, batch_size=batch_size)
    typer.echo(json.dumps(result))
