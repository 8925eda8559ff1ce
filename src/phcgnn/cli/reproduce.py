"""``phcgnn reproduce``: a table of the paper as one command."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from phcgnn.cli.errors import fail, failures, usage
from phcgnn.cli.options import LogFile, Quiet, Verbose, names

if TYPE_CHECKING:
    from rich.console import Console

    from phcgnn.experiments.execute import Execution, Observe, Outcome
    from phcgnn.experiments.paper import PaperTable
    from phcgnn.experiments.plan import PlannedRun
    from phcgnn.training.loop import Observer

__all__ = ["SeveralModels", "reproduce"]

_log = logging.getLogger("phcgnn")


class SeveralModels(TyperCommand):
    """Lets ``--models`` take several values: ``--models phc-1 phc-4`` is ``--models phc-1 --models phc-4``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option in front of each of its values.

        Raises:
            typer.BadParameter: No value follows the option.
        """
        spread: list[str] = []
        taking = lacking = False
        for arg in args:
            option, equals, _ = arg.partition("=")
            if arg.startswith("-"):
                _require_value(lacking)
                taking = option == "--models"
                lacking = taking and not equals
                spread += ([arg] if equals else []) if taking else [arg]
            else:
                spread += ["--models", arg] if taking else [arg]
                lacking = False
        _require_value(lacking)
        return super().parse_args(ctx, spread)


def _require_value(lacking: bool) -> None:
    if lacking:
        raise typer.BadParameter(
            "names of rows must follow, e.g. --models phc-1 phc-8-dagger; leave it out to train every row.",
            param_hint="--models",
        )


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, shallow, dropout, large-n, lambda2, timing, vision or ppa.", metavar="NAME"
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of runs, tables and report.")],
    models: Annotated[
        list[str] | None, typer.Option(help="Only these rows, e.g. phc-1 phc-8-dagger; several may follow.")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Seeds a row (default: as many as the paper).")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many (default: as the paper).")] = None,
    root: Annotated[Path, typer.Option(help="Official files, or packed stores NAME.phg.")] = Path("data"),
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once; over all GPUs where there are several.")] = 1,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting of every run; repeatable.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Save and leave after so many seconds; the same command goes on.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run and how long it would take.")] = False,
    report: Annotated[bool, typer.Option(help="Draw the figures and report.html.")] = True,
    any_size: Annotated[bool, typer.Option(help="Accept data of another size than the published ones.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU, for each run.")] = None,
    compile: Annotated[bool, typer.Option(help="Record and replay the training step, on a GPU.")] = True,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Save the state this often.")] = 60.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: LogFile = None,
) -> None:
    """Train the rows of a table of the paper and compare. Finished runs are not repeated, interrupted ones go on."""
    from phcgnn.cli.display import set_up_logging
    from phcgnn.configuration import require_known
    from phcgnn.experiments.execute import Execution
    from phcgnn.experiments.paper import paper_tables
    from phcgnn.experiments.plan import plan
    from phcgnn.experiments.settings import parse_override
    from phcgnn.training.runtime import Runtime

    with usage():
        require_known("reproduce", "table", name, paper_tables())
        table = paper_tables()[name]
        if table.timing and jobs > 1:
            raise ValueError("timing measures one run at a time; leave out --jobs.")
        _require_value(bool(models) and not names(models))
        Runtime(device=device, checkpoint_seconds=checkpoint_seconds)  # type: ignore[arg-type]
        overrides = [parse_override(one) for one in set_ or []]
        options: dict[str, Any] = {"models": names(models), "runs": runs, "epochs": epochs, "root": str(root)}
        planned = plan(table, output, overrides=overrides, **options)
    execution = Execution(
        device=device,  # type: ignore[arg-type]
        jobs=jobs,
        threads=threads,
        compile=compile,
        checkpoint_seconds=checkpoint_seconds,
        time_limit=time_limit,
    )
    console = set_up_logging(quiet=quiet, verbose=verbose, log_file=log_file)
    with failures():
        if dry_run:
            _dry_run(table, planned, output, execution, any_size)
            return
        outcome = _train(table, planned, output, execution, console, any_size)
        counts = _conclude(output, planned, report=report and outcome.stopped is None)
    typer.echo(json.dumps(counts))
    if outcome.stopped is not None:
        fail(f"stopped by {outcome.stopped}; everything is saved, and the same command goes on from there.")
    if outcome.failed:
        fail("; ".join(f"{run}: {reason}" for run, reason in outcome.failed.items()))


def _train(
    table: PaperTable, planned: list[PlannedRun], output: Path, execution: Execution, console: Console, any_size: bool
) -> Outcome:
    from phcgnn.experiments.execute import execute
    from phcgnn.experiments.reproduce import note_table

    note_table(output, table)
    return execute(planned, output, execution, any_size=any_size, observe=_displays(console), say=_log.info)


def _displays(console: Console) -> Observe:
    from phcgnn.cli.display import TrainingDisplay
    from phcgnn.data.benchmarks import DATASETS

    @contextlib.contextmanager
    def observe(run: PlannedRun) -> Iterator[Observer]:
        config = run.settings.training
        metric = config.metric or DATASETS[str(run.settings.data.name)].metadata.metric
        with TrainingDisplay(console, config.epochs, metric, f"{run.name}  ") as display:
            yield display

    return observe


def _conclude(output: Path, planned: list[PlannedRun], *, report: bool) -> dict[str, Any]:
    """Write tables and report; return what is printed."""
    from phcgnn.cli.report import make_report
    from phcgnn.experiments.comparison import TABLES
    from phcgnn.experiments.reproduce import summarise
    from phcgnn.training.folder import REPORT

    written = list(TABLES)
    if report:  # and the tables with it
        make_report(output)
        written.append(REPORT)
    else:
        summarise(output)
    states = [run.status for run in planned]
    counts = {state.replace(" ", "_"): states.count(state) for state in ("finished", "interrupted", "to do")}
    return {**counts, "written": [str(output / name) for name in written]}


def _dry_run(table: PaperTable, planned: list[PlannedRun], output: Path, execution: Execution, any_size: bool) -> None:
    """Print a line a row: its runs, its parameters, and how long they take at most."""
    from phcgnn.experiments.estimate import estimate
    from phcgnn.experiments.plan import parameter_count
    from phcgnn.experiments.stores import data_at_hand, provide_store

    rows = {run.row.name: run.row for run in planned}.values()
    total, unknown = 0.0, set[str]()
    typer.echo(f"{'row':<42} {'parameters':>10} {'runs':>5} {'left':>5} {'s/step':>8} {'s/epoch':>9} {'hours':>8}")
    for row in rows:
        mine = [run for run in planned if run.row.name == row.name]
        left = sum(run.status != "finished" for run in mine)
        first = mine[0].settings
        line = f"{row.name:<42} {parameter_count(first):>10,} {len(mine):>5} {left:>5}"
        data = str(first.data.name)
        if left and data_at_hand(data, first.data.root, output):
            _, store = provide_store(data, first.data.root, output, any_size=any_size)
            found = estimate(first, store, execution)
            hours = left * found.run / 3600
            total += hours
            line += f" {found.step:>8.3f} {found.epoch:>9.1f} {hours:>8.2f}"
        elif left:
            unknown.add(data)
        typer.echo(line)
    if unknown:
        typer.echo(f"No time is given for {', '.join(sorted(unknown))}: there are no such data under --root.")
    if total or not unknown:
        typer.echo(f"At most {_duration(total)}, one run after the other; runs may end early, by the learning rate.")


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{math.ceil(hours * 60)} minutes"
    return f"{hours:.1f} hours"
