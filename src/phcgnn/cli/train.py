"""``phcgnn train``: from data to a model folder."""

from __future__ import annotations

import json
import logging
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phcgnn.cli.errors import failures, first_process, usage
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
from phcgnn.files import write_text

if TYPE_CHECKING:
    from rich.console import Console

    from phcgnn.data import GraphStore
    from phcgnn.experiments.settings import RunSettings
    from phcgnn.training.folder import RunFolder
    from phcgnn.training.run import Result
    from phcgnn.training.runtime import Runtime

__all__ = ["train"]

_log = logging.getLogger("phcgnn")

PLAN, SUMMARY = "runs.json", "result.json"
"""Beside the folders of several runs: what was asked for, and mean and deviation over them at the end."""


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
    runs: Annotated[int | None, typer.Option(min=1, help="Train so many, with seeds seed, seed+1, ...")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Processes that train one model together.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU.")] = None,
    compile: Annotated[bool, typer.Option(help="Record and replay the training step, on a GPU.")] = True,
    deterministic: Annotated[bool, typer.Option(help="The same seed gives the same bits on a GPU too.")] = False,
    logger: Annotated[
        list[str] | None, typer.Option(help="csv, tensorboard, another Fabric logger's name, or none; repeatable.")
    ] = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Save the state this often.")] = 60.0,
    resume: Annotated[bool, typer.Option(help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Start anew even where the folder holds a run.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Write report.html and figures at the end.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Train on a table of molecules, a benchmark or a packed store. Prints the result as one JSON object."""
    from phcgnn.cli.display import DataDisplay, set_up_logging
    from phcgnn.cli.report import make_report
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
        runtime = Runtime(
            device=device,  # type: ignore[arg-type]
            devices=devices,
            threads=threads,
            compile=compile,
            deterministic=deterministic,
            checkpoint_seconds=checkpoint_seconds,
            loggers=None if not logger else tuple(name for name in logger if name != "none"),
        )
        _require_fitting(settings, runtime)
        plan = _plan(output, settings, runs, resume)
        if first_process():  # the others find what it has begun
            for folder, _ in plan:
                folder.require_free(resume=resume, overwrite=overwrite)
    with failures(batch_size=settings.training.batch_size):
        speaks = first_process()
        console = set_up_logging(quiet=quiet or not speaks, verbose=verbose, log_file=log_file if speaks else None)
        with DataDisplay(console) as progress:
            opened = open_data(settings.data, progress=progress)
        if opened.bad:
            _log.warning("%d rows left out, e.g. %s", len({row.row for row in opened.bad}), opened.bad[0])
        _log.info("%r", opened.store)
        if resume and not any(folder.checkpoint.exists() for folder, _ in plan):
            _log.info("%s holds nothing to resume; the run starts now", output)
        results = _train_all(opened.store, plan, settings, runtime, console, resume, overwrite)
        summary = _summary(results)
        if speaks:
            if len(plan) > 1:
                write_text(output / SUMMARY, json.dumps(summary, indent=2) + "\n")
            typer.echo(json.dumps(summary, allow_nan=False))
            if report:
                make_report(output)


def _settings(
    output: Path, preset: str | None, config: Path | None, overrides: list[str], flags: Any, resume: bool
) -> RunSettings:
    from phcgnn.experiments.settings import RunSettings, merge, parse_override, read_preset, read_settings

    own = _configurations(output)
    if resume and own and preset is None and config is None:
        parts = [read_settings(own[0])]
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


def _configurations(output: Path) -> list[Path]:
    """Return the settings of the run, or of the several runs by their seeds, that a folder holds."""
    from phcgnn.training.folder import seed_folders

    found = [path / "config.toml" for path in (output, *seed_folders(output))]
    if found[0].is_file():
        return found[:1]
    return [path for path in found if path.is_file()]


def _plan(output: Path, settings: RunSettings, runs: int | None, resume: bool) -> list[tuple[RunFolder, int]]:
    """Return the folder and the seed of every run."""
    from phcgnn.training.folder import RunFolder

    first = settings.training.seed
    own = _configurations(output)
    several = bool(own) and own[0].parent != output
    if runs is None and several:
        runs = _planned_runs(output) or len(own) if resume else 1
    elif runs is not None and resume and own and several != (runs > 1):
        raise ValueError(
            f"--resume --runs {runs}: {output} holds {'several runs' if several else 'one run'}; leave --runs out."
        )
    if runs is None or runs == 1:
        if several:
            raise FileExistsError(f"{output} holds several runs; give another folder, or --runs.")
        return [(RunFolder(output), first)]
    if (output / "config.toml").is_file():
        raise FileExistsError(f"{output} holds a single run; several need another folder.")
    return [(RunFolder(output / f"seed-{seed}"), seed) for seed in range(first, first + runs)]


def _planned_runs(output: Path) -> int | None:
    try:
        return int(json.loads((output / PLAN).read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _require_fitting(settings: RunSettings, runtime: Runtime) -> None:
    """Refuse, before anything is read, what cannot work with the data that are asked for."""
    settings.data.require_source()
    settings.training.require_shares(runtime.devices)
    name, path = settings.data.name, settings.data.path
    if path is not None:
        if path == "-" and runtime.devices > 1:
            raise ValueError("--data-path - can be read by one process only; write the table to a file.")
        if path != "-" and not Path(path).is_file():
            raise FileNotFoundError(f"--data-path {path}: there is no such file.")
        settings.training.require_fits(settings.data.task)
    if name is None or Path(name).is_file():
        return
    if name.endswith(".phg"):
        raise FileNotFoundError(f"--data {name}: there is no such file.")
    from phcgnn.data.benchmarks import DATASETS
    from phcgnn.training.run import model_config

    metadata = DATASETS[name].metadata
    settings.training.require_fits(metadata.task)
    if settings.model.get("aggregation") != "pna":  # whose degrees are counted in the data
        model_config(metadata, settings.model)


def _train_all(
    store: GraphStore,
    plan: list[tuple[RunFolder, int]],
    settings: RunSettings,
    runtime: Runtime,
    console: Console,
    resume: bool,
    overwrite: bool,
) -> list[Result]:
    from dataclasses import replace

    from phcgnn.cli.display import TrainingDisplay
    from phcgnn.training.folder import discard_report
    from phcgnn.training.run import train as run

    if len(plan) > 1 and first_process():
        parent = plan[0][0].path.parent
        parent.mkdir(parents=True, exist_ok=True)
        if overwrite:
            (parent / SUMMARY).unlink(missing_ok=True)
            discard_report(parent)
        write_text(parent / PLAN, json.dumps({"runs": len(plan), "seeds": [seed for _, seed in plan]}) + "\n")
    results = []
    for folder, seed in plan:
        config = replace(settings.training, seed=seed)
        title = "" if len(plan) == 1 else f"seed {seed}  "
        metric = config.metric or store.metadata.metric
        with TrainingDisplay(console, config.epochs, metric, title) as display:
            result = run(
                store,
                folder.path,
                model=settings.model,
                config=config,
                runtime=runtime,
                resume=resume,
                overwrite=overwrite,
                observer=display,
                record={"config.toml": replace(settings, training=config).to_toml()},
            )
        results.append(result)
        scores = "  ".join(
            f"{split} {result.metric} {score[result.metric]:.4f}" for split, score in result.scores.items()
        )
        _log.info("%sdone: %s. Best epoch %d: %s", title, result.ended, result.best_epoch + 1, scores)
        if result.best_epoch < 0:
            _log.warning(
                "no epoch had a validation %s, for which the split `val` may lack a yes or a no; kept are the weights "
                "of the last epoch. Choose another --metric or another split.",
                result.metric,
            )
    return results


def _summary(results: list[Result]) -> dict[str, Any]:
    """Return the result of one run, or mean and deviation over several."""
    from dataclasses import asdict

    from phcgnn.training.folder import finite

    if len(results) == 1:
        return finite(asdict(results[0]))
    first = results[0]
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for split, by_metric in first.scores.items():
        scores[split] = {}
        for metric in by_metric:
            values = [result.scores[split][metric] for result in results]
            scores[split][metric] = {"mean": statistics.mean(values), "std": statistics.stdev(values)}
    for split, of_split in scores.items():
        leading = of_split[first.metric]
        _log.info("%d runs: %s %s %.4f +- %.4f", len(results), split, first.metric, leading["mean"], leading["std"])
    summary = {
        "runs": len(results),
        "metric": first.metric,
        "parameters": first.parameters,
        "scores": scores,
        "seeds": [result.seed for result in results],
    }
    return finite(summary)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"must be three numbers, e.g. 0.8,0.1,0.1, got {text!r}.", param_hint="--split-fractions"
        ) from error
