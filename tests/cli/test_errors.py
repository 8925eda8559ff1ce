import errno

import pytest
import torch
import typer

from phcgnn.cli.errors import failures, first_process, usage
from phcgnn.errors import DataError
from phcgnn.training.interrupt import Interrupted
from phcgnn.training.loop import NonFiniteLoss

OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nOf the allocated memory ...")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("mols.csv: no rows."), "Error: mols.csv: no rows."),
        (NonFiniteLoss("the loss became NaN."), "Error: the loss became NaN."),
        (ImportError("rdkit is needed"), "Error: rdkit is needed"),
        (Interrupted("SIGTERM"), "stopped by SIGTERM; the state is saved, and the same command with --resume goes on"),
        (OOM, "the GPU is out of memory at batch size 64; try --batch-size 32 (CUDA out of memory."),
        (MemoryError(), "this machine is out of memory (no more is known)."),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: ..."), "this machine is out of memory"),
        (OSError(errno.ENOSPC, "No space left on device", "run/model.json"), "No space left on device: run/model.json"),
        (OSError(errno.ENOSPC, "No space left on device"), "Error: No space left on device.\n"),
        (OSError("a text of ours"), "Error: a text of ours\n"),
        (RuntimeError("Connection closed by peer [127.0.0.1]:4"), "a process that trains along has failed"),
    ],
)
def test_failures_are_one_message_and_1(error, message, capsys):
    with pytest.raises(typer.Exit) as left, failures(batch_size=64):
        raise error
    assert left.value.exit_code == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_mistake_of_ours_is_not_hidden():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), failures():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(KeyError), failures():
        raise KeyError("x")


def test_the_system_s_numbers_are_left_out():
    with pytest.raises(typer.BadParameter, match=r"^Permission denied: x$"), usage():
        raise PermissionError(errno.EACCES, "Permission denied", "x")


@pytest.mark.parametrize("error", [ValueError("no"), TypeError("no"), FileExistsError("no")])
def test_wrong_usage_is_2(error):
    with pytest.raises(typer.BadParameter) as left, usage():
        raise error
    assert left.value.exit_code == 2


def test_of_several_processes_the_first_one_speaks(monkeypatch, capsys):
    assert first_process()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not first_process()
    with pytest.raises(typer.Exit) as left, failures():
        raise DataError("mols.csv: no rows.")
    assert left.value.exit_code == 1
    with pytest.raises(typer.Exit) as left, usage():
        raise ValueError("no")
    assert left.value.exit_code == 2
    assert capsys.readouterr() == ("", "")
