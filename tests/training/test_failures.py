"""What breaks a run leaves its last state whole: a full disk, a folder that is closed, numbers that are none."""

import dataclasses
import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from phcgnn.models.folder import load_model
from phcgnn.training.checkpoint import read_checkpoint
from phcgnn.training.config import TrainingConfig
from phcgnn.training.loop import NonFiniteLoss
from phcgnn.training.run import train
from phcgnn.training.runtime import Runtime
from phcgnn.training.step import TrainingStep

from .conftest import MODEL, TRAINING, finish, make_store, start, workers

CONFIG = TrainingConfig(**TRAINING)
EVERY_STEP = Runtime(device="cpu", loggers=(), checkpoint_seconds=0.0)
AT_THE_END = Runtime(device="cpu", loggers=(), checkpoint_seconds=1e9)


def weights(folder):
    return load_model(folder).model.state_dict()


def assert_goes_on(store, out, tmp_path):
    """Once there is room again, the run ends as one that was left alone."""
    train(store, out, model=MODEL, config=CONFIG, runtime=AT_THE_END, resume=True)
    train(store, tmp_path / "whole", model=MODEL, config=CONFIG, runtime=AT_THE_END)
    one, other = weights(out), weights(tmp_path / "whole")
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("at", [1, 7])
def test_no_space_left(store, tmp_path, monkeypatch, at):
    out, left, real = tmp_path / "run", at, os.fsync

    def fsync(descriptor):
        nonlocal left
        if list((out / "checkpoints").glob(".last.*")):
            left -= 1
            if left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="No space left on device") as raised:
            train(store, out, model=MODEL, config=CONFIG, runtime=EVERY_STEP)
    assert raised.value.filename == str(out / "checkpoints" / "last")
    assert not list(out.rglob(".*.part"))
    if at > 1:
        progress = read_checkpoint(out / "checkpoints" / "last")
        assert progress["loader"]["position"] + 4 * progress["progress"]["epoch"] > 0
    assert_goes_on(store, out, tmp_path)


def test_a_disk_that_fills_up_while_training(store, stored, processes, tmp_path):
    """The kernel's own refusal, in the middle of a file."""
    out, report = tmp_path / "run", tmp_path / "report"
    process = start(
        processes,
        workers.run_until_the_disk_is_full,
        *(stored, out, MODEL, TRAINING, report),
        saves=5,
        size=4096,
        runtime={"checkpoint_seconds": 0.0, "loggers": ()},
    )
    assert finish(process) == 0
    assert re.fullmatch(
        rf"OSError: .*File too large.*{re.escape(str(out / 'checkpoints' / 'last'))}'", report.read_text()
    )
    assert not list(out.rglob(".*.part"))
    assert_goes_on(store, out, tmp_path)


def test_a_folder_that_may_not_be_written(stored, processes, tmp_path):
    closed = Path(tempfile.mkdtemp())  # not below tmp_path, into which others may not even look
    closed.chmod(0o555)
    try:
        for out in (closed, closed / "run"):
            report = tmp_path / "report"
            process = start(processes, workers.run_unprivileged, stored, out, MODEL, TRAINING, report, loggers=())
            assert finish(process) == 0
            assert re.fullmatch(rf"PermissionError: .*{re.escape(str(out))}.*", report.read_text())
        assert not list(closed.iterdir())
    finally:
        closed.chmod(0o755)
        shutil.rmtree(closed)


def nan_at(monkeypatch, number):
    """Make the loss of one step NaN, and count the steps."""
    real, taken = TrainingStep.__call__, []

    def step(self, batch, lr):
        loss, count = real(self, batch, lr)
        taken.append(batch)
        return (loss * float("nan") if len(taken) == number else loss), count

    monkeypatch.setattr(TrainingStep, "__call__", step)
    return taken


def test_a_nan_names_its_batch_and_keeps_the_last_good_state(store, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        nan_at(patch, 7)
        with pytest.raises(NonFiniteLoss, match=r"NaN or infinite in epoch 2, batch 3 of 4\. The last good state is"):
            train(store, out, model=MODEL, config=CONFIG, runtime=EVERY_STEP)
    state = read_checkpoint(out / "checkpoints" / "last")
    assert (state["progress"]["epoch"], state["loader"]["position"]) == (1, 2)
    assert all(value.isfinite().all() for value in state["step"]["model"].values())
    assert_goes_on(store, out, tmp_path)


def test_a_nan_is_found_at_the_end_of_an_epoch_without_a_wait_before(store, tmp_path, monkeypatch):
    taken = nan_at(monkeypatch, 2)
    with pytest.raises(NonFiniteLoss, match=r"in epoch 1, batch 2 of 4\. No state had been saved yet\..*learning rate"):
        train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=AT_THE_END)
    assert len(taken) == 4  # the first bad batch is named, though later ones ran
    assert not (tmp_path / "run" / "checkpoints" / "last").exists()


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_learning_rate_that_is_far_too_high(store, tmp_path, clip):
    config = dataclasses.replace(CONFIG, lr=1e30, loss="mse", gradient_clip=clip)
    with pytest.raises(NonFiniteLoss, match=r"became NaN or infinite in epoch 1, (by )?batch \d of 4"):
        train(store, tmp_path / "run", model=MODEL, config=config, runtime=EVERY_STEP)
    last = tmp_path / "run" / "checkpoints" / "last"
    if last.exists():
        assert all(value.isfinite().all() for value in read_checkpoint(last)["step"]["model"].values())


def test_what_a_failed_run_leaves_is_no_finished_run(tmp_path, monkeypatch):
    store = make_store()
    with monkeypatch.context() as patch:
        nan_at(patch, 7)
        with pytest.raises(NonFiniteLoss):
            train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=EVERY_STEP)
    assert not (tmp_path / "run" / "result.json").exists()
    with pytest.raises(FileExistsError, match=r"has not ended; continue it with --resume"):
        train(store, tmp_path / "run", model=MODEL, config=CONFIG, runtime=EVERY_STEP)
