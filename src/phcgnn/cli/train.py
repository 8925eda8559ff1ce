"""``phcgnn train``: from data to a model folder."""

from __future__ import annotations

import json
import logging
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phcgnn.cli.errors import failures, usage
from phcgnn.cli.options import (
    DataName,
    DataPath,
    Featuriser,
    IdColumn,
    LogFile,
    OnInvalid,
    Quiet,
    Root,
    SmilesColumn,
    SplitColumn,
    TargetColumns,
    TaskName,
    Verbose,
    WeightColumn,
    given,
    names,
)

if TYPE_CHECKING:
    from rich.console import Console

    from phcgnn.data import GraphStore
    from phcgnn.experiments.settings import RunSettings
    from phcgnn.training.run import Result
    from phcgnn.training.runtime import Runtime

__all__ = ["train"]

_log = logging.getLogger("phcgnn")


def train(
    output: Annotated[Path, typer.Option("--output", "-o", help="The run's folder; it becomes the model.")],
    data: DataName = None,
    root: Root = None,
    data_path: DataPath = None,
    smiles_column: SmilesColumn = None,
    target_columns: TargetColumns = None,
    task: TaskName = None,
    weight_column: WeightColumn = None,
    id_column: IdColumn = None,
    featuriser: Featuriser = None,
    split_column: SplitColumn = None,
    split: Annotated[str | None, typer.Option(help="scaffold (default), random, stratified, butina or kmeans.")] = None,
    split_fractions: Annotated[
        str | None, typer.Option(help="Shares of training, validation and test, e.g. 0.8,0.1,0.1.")
    ] = None,
    split_seed: Annotated[int | None, typer.Option(help="Of a random split.")] = None,
    split_file: Annotated[Path | None, typer.Option(help="A splits.json to use instead.")] = None,
    on_invalid: OnInvalid = None,
    preset: Annotated[str | None, typer.Option(help="An experiment of the paper, e.g. zinc-400k-phc5.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.", exists=True, dir_okay=False)] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="One setting, e.g. model.n=8; repeatable.")] = None,
    epochs: Annotated[int | None, typer.Option(help="At most so many.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Graphs a step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    loss: Annotated[str | None, typer.Option(help="l1, mse, huber, bce, cross_entropy or focal.")] = None,
    metric: Annotated[str | None, typer.Option(help="What the best epoch is chosen by.")] = None,
    class_balance: Annotated[str | None, typer.Option(help="none, weights or sampling.")] = None,
    max_time: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32 or bf16.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Train so many, with seeds seed, seed+1, ...")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Processes that train one model together.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU.")] = None,
    deterministic: Annotated[bool, typer.Option(help="The same seed gives the same bits on a GPU too.")] = False,
    logger: Annotated[list[str] | None, typer.Option(help="csv, tensorboard, or a Fabric logger's name.")] = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Save the state this often.")] = 60.0,
    resume: Annotated[bool, typer.Option(help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Start anew even where the folder holds a run.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Train on a table of molecules, a benchmark or a packed store. Prints the result as one JSON object."""
    from phcgnn.cli.display import set_up_logging
    from phcgnn.data.sources import open_data
    from phcgnn.training.runtime import Runtime

    fractions = None if split_fractions is None else _numbers(split_fractions)
    flags = {
        "data": given(
            name=data,
            root=root,
            path=data_path,
            smiles_column=smiles_column,
            target_columns=names(target_columns),
            task=task,
            weight_column=weight_column,
            id_column=id_column,
            featuriser=featuriser,
            split_column=split_column,
            split=split,
            fractions=fractions,
            split_seed=split_seed,
            split_file=split_file,
            on_invalid=on_invalid,
        ),
        "training": given(
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            loss=loss,
            metric=metric,
            class_balance=class_balance,
            max_time=max_time,
            precision=precision,
            seed=seed,
        ),
    }
    with usage():
        if resume and overwrite:
            raise ValueError("--resume goes on with a run, --overwrite throws it away; give one of them.")
        settings = _settings(output, preset, config, set_ or [], flags, resume)
        settings.data.require_source()
        _require_known_source(settings)
        runtime = Runtime(
            device=device,  # type: ignore[arg-type]
            devices=devices,
            deterministic=deterministic,
            checkpoint_seconds=checkpoint_seconds,
            loggers=tuple(logger or ()),
        )
    console = set_up_logging(quiet=quiet, verbose=verbose, log_file=log_file)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with failures(batch_size=settings.training.batch_size):
        opened = open_data(settings.data)
        if opened.bad:
            _log.warning("%d rows left out, e.g. %s", len({row.row for row in opened.bad}), opened.bad[0])
        _log.info("%r", opened.store)
        results = _train_all(opened.store, output, settings, runtime, runs, console, resume, overwrite)
    typer.echo(json.dumps(_summary(results)))


def _settings(
    output: Path, preset: str | None, config: Path | None, overrides: list[str], flags: Any, resume: bool
) -> RunSettings:
    from phcgnn.experiments.settings import RunSettings, merge, parse_override, read_preset, read_settings

    own = _configuration(output)
    if resume and own is not None and preset is None and config is None:
        parts = [read_settings(own)]
    elif preset is None and config is None and flags["data"].get("path") is not None:
        parts = [read_preset("_table")]
    else:
        parts = []
    if preset is not None:
        parts.append(read_preset(preset))
    if config is not None:
        parts.append(read_settings(config))
    merged = merge([*parts, *map(parse_override, overrides), flags])
    for ours, other in (("name", "path"), ("path", "name")):  # a flag replaces a preset's data
        if ours in flags["data"] and other not in flags["data"]:
            merged["data"].pop(other, None)
    data = merged.get("data", {})
    if data.get("path") is not None and data.get("task", "regression") == "regression":
        merged.setdefault("training", {}).setdefault("standardise", True)
    return RunSettings.build(merged)


def _configuration(output: Path) -> Path | None:
    found = [path for path in (output / "config.toml", *sorted(output.glob("seed-*/config.toml"))) if path.is_file()]
    return found[0] if found else None


def _require_known_source(settings: RunSettings) -> None:
    name, path = settings.data.name, settings.data.path
    if path is not None and path != "-" and not Path(path).is_file():
        raise FileNotFoundError(f"--data-path {path}: there is no such file.")
    if name is None or Path(name).is_file():
        return
    if name.endswith(".phg"):
        raise FileNotFoundError(f"--data {name}: there is no such file.")
    from phcgnn.data.benchmarks import DATASETS

    _ = DATASETS[name]


def _train_all(
    store: GraphStore,
    output: Path,
    settings: RunSettings,
    runtime: Runtime,
    runs: int,
    console: Console,
    resume: bool,
    overwrite: bool,
) -> list[Result]:
    from dataclasses import replace

    from phcgnn.cli.display import TrainingDisplay
    from phcgnn.training.run import train as run

    results = []
    for number in range(runs):
        config = replace(settings.training, seed=settings.training.seed + number)
        folder = output if runs == 1 else output / f"seed-{config.seed}"
        title = "" if runs == 1 else f"seed {config.seed}  "
        metric = config.metric or store.metadata.metric
        one = replace(settings, training=config)
        with TrainingDisplay(console, config.epochs, metric, title) as display:
            result = run(
                store,
                folder,
                model=settings.model,
                config=config,
                runtime=runtime,
                resume=resume,
                overwrite=overwrite,
                observer=display,
                record={"config.toml": one.to_toml()},
            )
        results.append(result)
        scores = "  ".join(
            f"{split} {result.metric} {score[result.metric]:.4f}" for split, score in result.scores.items()
        )
        _log.info("%sdone: %s. Best epoch %d: %s", title, result.ended, result.best_epoch + 1, scores)
    return results


def _summary(results: list[Result]) -> dict[str, Any]:
    """Return the result of one run, or mean and deviation over several."""
    from dataclasses import asdict

    if len(results) == 1:
        return asdict(results[0])
    first = results[0]
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for split, by_metric in first.scores.items():
        scores[split] = {}
        for metric in by_metric:
            values = [result.scores[split][metric] for result in results]
            scores[split][metric] = {"mean": statistics.mean(values), "std": statistics.stdev(values)}
    return {
        "runs": len(results),
        "metric": first.metric,
        "parameters": first.parameters,
        "scores": scores,
        "seeds": [result.seed for result in results],
    }


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"must be three numbers, e.g. 0.8,0.1,0.1, got {text!r}.", param_hint="--split-fractions"
        ) from error
