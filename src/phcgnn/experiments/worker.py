"""One run in a process of its own: ``python -m phcgnn.experiments.worker TASK``, where TASK is a JSON object.

Its log goes to stdout; it leaves with 0 when the run is finished, with 3 when it was asked to stop and saved. It
asks itself once the process that started it is gone.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path

import torch

from phcgnn.data.graphs import GraphStore
from phcgnn.experiments.execute import STOPPED, Execution, train_planned
from phcgnn.experiments.settings import RunSettings, read_settings
from phcgnn.training.interrupt import Interrupted
from phcgnn.training.loop import Epoch, NonFiniteLoss, Observer

__all__ = ["main"]

_log = logging.getLogger("phcgnn.worker")


class _Lines(Observer):
    """A line an epoch; asks the run to save and leave where nobody waits for it any more."""

    def __init__(self, parent: int) -> None:
        self.parent, self.asked = parent, False

    def batch(self, epoch: int, done: int, batches: int, graphs: int) -> None:
        if not self.asked and _orphaned(self.parent):
            self.asked = True
            _log.info("the process that started this one is gone")
            signal.raise_signal(signal.SIGTERM)

    def epoch(self, epoch: Epoch, epochs: int) -> None:
        name, score = next(iter(epoch.scores.items()))
        _log.info(
            "epoch %d/%d  loss %.4f  val %s %.4f  lr %.2g  %.1f s",
            epoch.epoch + 1, epochs, epoch.train_loss, name, score, epoch.lr, epoch.seconds,
        )  # fmt: skip


def _orphaned(parent: int) -> bool:
    """Whether the process of that number, which started this one, has ended; not known where it does not show."""
    return os.name == "posix" and os.getppid() != parent


def main(task: str) -> int:
    """Train what the task says; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    about = json.loads(task)
    torch.set_num_threads(about["threads"])
    folder = Path(about["folder"])
    settings = RunSettings.build(read_settings(folder / "config.toml"))
    execution = Execution(
        device=about["device"], compile=about["compile"], checkpoint_seconds=about["checkpoint_seconds"]
    )
    try:
        train_planned(
            settings,
            folder,
            GraphStore.load(about["store"]),
            execution,
            scores=about["scores"],
            observer=_Lines(about["parent"]),
        )
    except Interrupted as error:
        _log.info("stopped by %s; the state is saved", error)
        return STOPPED
    except (NonFiniteLoss, torch.OutOfMemoryError, ValueError, OSError) as error:
        _log.error("%s: %s", type(error).__name__, " ".join(str(error).split()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
