"""Loggers of Lightning Fabric by name, each writing into the run's folder."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.csv_logs import CSVLogger
from lightning.fabric.loggers.logger import Logger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger

__all__ = ["LoggerGroup", "build_loggers", "require_logger"]

SHORT = {"csv": "CSVLogger", "tensorboard": "TensorBoardLogger"}

NEEDS = {
    "TensorBoardLogger": ("tensorboard", "tensorboardX"),
    "WandbLogger": ("wandb",),
    "MLFlowLogger": ("mlflow", "mlflow-skinny"),
    "CometLogger": ("comet_ml",),
    "NeptuneLogger": ("neptune",),
}
"""Packages that a logger needs: one of them."""


def require_logger(name: str) -> type[Logger]:
    """Return the class that a name stands for; refuse what does not exist or lacks its package.

    >>> require_logger("csv").__name__
    'CSVLogger'
    >>> require_logger("papyrus")
    Traceback (most recent call last):
    ValueError: unknown logger 'papyrus'; give csv, tensorboard, a logger of Lightning, e.g. WandbLogger, or the full
        name of a class of yours, e.g. package.module.MyLogger.
    """
    wanted = SHORT.get(name, name)
    packages = NEEDS.get(wanted, ())
    if packages and not any(_installed(package) for package in packages):
        raise ValueError(f"the logger {name!r} needs the package {packages[0]}: pip install {packages[0]}.")
    found = _find(wanted)
    if found is None:
        raise ValueError(
            f"unknown logger {name!r}; give csv, tensorboard, a logger of Lightning, e.g. WandbLogger, or the full "
            "name of a class of yours, e.g. package.module.MyLogger."
        )
    return found


class LoggerGroup:
    """Several loggers as one.

    Args:
        loggers: What every line goes to.
    """

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self.loggers = tuple(loggers)

    def log(self, row: Mapping[str, float | int]) -> None:
        """Log a line of ``metrics.csv``; its epoch is the step."""
        for logger in self.loggers:
            logger.log_metrics(_without_epoch(row), step=int(row["epoch"]))

    def replay(self, history: Sequence[Mapping[str, float | int]]) -> None:
        """After a resumption: log again what a logger that starts its file anew has lost."""
        for logger in self.loggers:
            if isinstance(logger, CSVLogger):
                for row in history:
                    logger.log_metrics(_without_epoch(row), step=int(row["epoch"]))

    def close(self, *, success: bool) -> None:
        """Bring everything to the disk."""
        for logger in self.loggers:
            logger.finalize("success" if success else "failed")


def build_loggers(names: Sequence[str] | None, folder: Path) -> LoggerGroup:
    """Make loggers that write into a folder.

    Args:
        names: ``csv``, ``tensorboard``, a class of ``lightning.fabric.loggers`` or ``lightning.pytorch.loggers``, or
            the full name of any other. (default: ``tensorboard`` where it is installed)
        folder: The run's ``log``.
    """
    if names is None:
        names = ("tensorboard",) if any(_installed(package) for package in NEEDS["TensorBoardLogger"]) else ()
    return LoggerGroup([_build(require_logger(name), folder) for name in names])


def _build(kind: type[Logger], folder: Path) -> Logger:
    make: Any = kind
    if issubclass(kind, CSVLogger):
        shutil.rmtree(folder / "csv", ignore_errors=True)  # it has no way to append
        return make(root_dir=folder, name="csv", version="", flush_logs_every_n_steps=1)
    if issubclass(kind, TensorBoardLogger):
        return make(root_dir=folder, name="", version="")
    accepted = inspect.signature(kind).parameters
    where = {name: str(folder) for name in ("root_dir", "save_dir") if name in accepted}
    return make(**where)


def _find(name: str) -> type[Logger] | None:
    module, dot, last = name.rpartition(".")
    places = [module] if dot else ["lightning.fabric.loggers", "lightning.pytorch.loggers"]
    for place in places:
        try:
            found = getattr(importlib.import_module(place), last, None)
        except ModuleNotFoundError:
            continue
        if isinstance(found, type) and issubclass(found, Logger):
            return found
    return None


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package.replace("-", "_")) is not None


def _without_epoch(row: Mapping[str, float | int]) -> dict[str, Any]:
    return {name: float(value) for name, value in row.items() if name != "epoch"}
