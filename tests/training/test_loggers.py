import csv
import importlib.util

import pytest
from lightning.fabric.loggers.logger import Logger

from phcgnn.training import loggers
from phcgnn.training.config import TrainingConfig
from phcgnn.training.loggers import build_loggers, require_logger
from phcgnn.training.run import train
from phcgnn.training.runtime import Runtime

from .conftest import MODEL, TRAINING

ROWS = [{"epoch": 0, "lr": 0.1, "val_mae": 2.0}, {"epoch": 1, "lr": 0.05, "val_mae": float("nan")}]


class Memory(Logger):
    """A logger of the user's own; remembers what it is told."""

    last = None

    def __init__(self, save_dir):
        self.save_dir, self.rows, self.ended = save_dir, [], None
        type(self).last = self

    name = version = "memory"

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, metrics))

    def log_hyperparams(self, params, *args, **kwargs):
        raise NotImplementedError

    def finalize(self, status):
        self.ended = status


@pytest.fixture
def own_logger(monkeypatch):
    """Its full name, as a user would give it."""
    import sys

    module = type(sys)("laboratory")
    module.Memory = Memory
    monkeypatch.setitem(sys.modules, "laboratory", module)
    return "laboratory.Memory"


def test_csv(tmp_path):
    group = build_loggers(["csv"], tmp_path)
    for row in ROWS:
        group.log(row)
    group.close(success=True)
    (path,) = tmp_path.rglob("*.csv")
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["step"], float(row["lr"])) for row in found] == [("0", 0.1), ("1", 0.05)]


def test_csv_is_whole_after_a_resumption(tmp_path):
    """It has no way to append, so what was logged before is logged again."""
    build_loggers(["csv"], tmp_path).log(ROWS[0])
    group = build_loggers(["csv"], tmp_path)
    group.replay(ROWS[:1])
    group.log(ROWS[1])
    group.close(success=True)
    (path,) = tmp_path.rglob("*.csv")
    assert len(path.read_text().splitlines()) == 3


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    group = build_loggers(None, tmp_path)
    for row in ROWS:
        group.log(row)
    group.close(success=True)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("lr")] == [
        (0, pytest.approx(0.1)),
        (1, pytest.approx(0.05)),
    ]


def test_any_other_by_its_full_name(store, tmp_path, own_logger):
    runtime = Runtime(device="cpu", loggers=(own_logger,))
    train(store, tmp_path / "run", model=MODEL, config=TrainingConfig(**TRAINING), runtime=runtime)
    assert [step for step, _ in Memory.last.rows] == [0, 1, 2, 3]
    assert {"lr", "train_loss", "val_mae"} < set(Memory.last.rows[0][1])
    assert Memory.last.save_dir == str(tmp_path / "run" / "log")
    assert Memory.last.ended == "success"


def test_a_missing_package_is_said_where_the_logger_is_asked_for_and_else_nothing_is_logged(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "_installed", lambda package: False)
    with pytest.raises(ValueError, match=r"the logger 'tensorboard' needs the package tensorboard: pip install"):
        require_logger("tensorboard")
    assert build_loggers(None, tmp_path).loggers == ()
    assert list(tmp_path.iterdir()) == []
    assert importlib.util.find_spec("csv") is not None


@pytest.mark.parametrize("name", ["papyrus", "no.such.module.Logger", "pathlib.Path"])
def test_unknown(name):
    with pytest.raises(ValueError, match=f"unknown logger '{name}'; give csv, tensorboard"):
        require_logger(name)
