"""What a command shows while it works: a live line on a terminal, plain lines elsewhere, all of it on stderr."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from phcgnn.training.loop import Epoch, Observer

__all__ = ["DataDisplay", "TrainingDisplay", "set_up_logging"]

_log = logging.getLogger("phcgnn")


def set_up_logging(*, quiet: bool, verbose: bool, log_file: Path | None) -> Console:
    """Send the package's log to stderr, and to a file if one is named; return the console of stderr."""
    console = Console(stderr=True, quiet=quiet)
    for old in _log.handlers[:]:
        _log.removeHandler(old)
        old.close()
    _log.setLevel(logging.DEBUG if verbose else logging.INFO)
    _log.propagate = False
    for name in ("lightning", "lightning.fabric", "lightning.pytorch"):  # which greet every process
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)
    if not quiet:
        handler = RichHandler(console=console, show_time=False, show_path=False, show_level=False, markup=False)
        _log.addHandler(handler if console.is_terminal else logging.StreamHandler(sys.stderr))
    if log_file is not None:
        file = logging.FileHandler(log_file, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _log.addHandler(file)
    return console


class DataDisplay:
    """A progress bar on the real stderr, whatever the loaders do to theirs.

    Args:
        console: Whose manners it has: none is shown where that is quiet or no terminal. (default: always shown)
    """

    def __init__(self, console: Console | None = None) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(
            *columns,
            console=Console(file=sys.stderr),
            redirect_stdout=False,
            redirect_stderr=False,
            transient=console is not None,
            disable=console is not None and (console.quiet or not console.is_terminal),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Say what is being done, and how much of it is."""
        if what not in self._tasks:
            for task in self._tasks.values():
                self._bar.update(task, total=1, completed=1)
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, total=total)


class TrainingDisplay(Observer):
    """One display of a run.

    Args:
        console: Where to draw.
        epochs: How many epochs the run has at most.
        metric: The leading metric's name.
        title: Shown in front, e.g. the seed where there are several runs.
    """

    REDRAW_SECONDS = 0.1

    def __init__(self, console: Console, epochs: int, metric: str, title: str = "") -> None:
        self.console, self.epochs, self.metric, self.title = console, epochs, metric, title
        self.live = console.is_terminal and not console.quiet
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left  {task.fields[state]}"),
            console=console,
            transient=True,
            disable=not self.live,
        )
        self._run: TaskID | None = None
        self._epoch: TaskID | None = None
        self._graphs = 0
        self._since = self._drawn = time.monotonic()
        self._best = self._loss = ""

    def __enter__(self) -> Self:
        self.bar.start()
        self._run = self.bar.add_task(f"{self.title}epochs", total=self.epochs, state="")
        self._epoch = self.bar.add_task("batches", total=None, state="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def batch(self, epoch: int, done: int, batches: int, graphs: int) -> None:
        """Move the bar; drawn ten times a second at most."""
        self._graphs += graphs
        now = time.monotonic()
        if not self.live or now - self._drawn < self.REDRAW_SECONDS or self._epoch is None:
            return
        rate = self._graphs / max(now - self._since, 1e-9)
        self._drawn = now
        self.bar.update(self._epoch, completed=done, total=batches, state=f"{rate:,.0f} graphs/s  {self._loss}")

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        """Say how the epoch went."""
        leading = epoch.scores[self.metric]
        if epoch.best:
            self._best = f"  best val {self.metric} {leading:.4f} (epoch {epoch.epoch + 1})"
        self._loss = f"loss {epoch.train_loss:.4f}"
        self._graphs, self._since = 0, time.monotonic()
        best = " *" if epoch.best else ""
        line = (
            f"{self.title}epoch {epoch.epoch + 1}/{epochs}  loss {epoch.train_loss:.4f}  "
            f"val {self.metric} {leading:.4f}{best}  lr {epoch.lr:.2g}  "
            f"{epoch.graphs_per_second:,.0f} graphs/s  {epoch.seconds:.1f} s"
        )
        _log.info(line)
        if self.live and self._run is not None:
            self.bar.update(self._run, completed=epoch.epoch + 1, state=f"lr {epoch.lr:.2g}{self._best}")

    def saved(self, path: Path) -> None:
        """Note it in the log."""
        _log.debug("saved %s", path)
