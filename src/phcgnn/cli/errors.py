"""How a command fails: one message on stderr, 1 for what went wrong, 2 for what was asked wrongly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NoReturn

import typer

__all__ = ["fail", "failures", "first_process", "usage"]


def first_process() -> bool:
    """Whether this is the process that speaks: of several that train together, the others keep quiet."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK"))


def fail(message: object) -> NoReturn:
    """Print what went wrong and leave with 1."""
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(1)


@contextlib.contextmanager
def usage(*, about: str | None = None) -> Iterator[None]:
    """Turn what the library refuses into wrong usage: exit code 2."""
    try:
        yield
    except (TypeError, ValueError, OSError) as error:
        if not first_process():
            raise typer.Exit(2) from error
        raise typer.BadParameter(_plain(error), param_hint=about) from error


@contextlib.contextmanager
def failures(*, batch_size: int | None = None) -> Iterator[None]:
    """Turn what can go wrong in honest work into one message and exit code 1.

    Args:
        batch_size: Named where a GPU runs out of memory.
    """
    import torch

    from phcgnn.training.interrupt import Interrupted
    from phcgnn.training.loop import NonFiniteLoss

    try:
        yield
    except (Interrupted, NonFiniteLoss, ValueError, ImportError) as error:
        if not first_process():  # the first one says the same
            raise typer.Exit(1) from error
        if isinstance(error, Interrupted):
            fail(f"stopped by {error}; the state is saved, and the same command with --resume goes on from there.")
        fail(error)
    except torch.OutOfMemoryError as error:
        size = "" if batch_size is None else f" at batch size {batch_size}; try --batch-size {max(batch_size // 2, 1)}"
        fail(f"the GPU is out of memory{size} ({_first_line(error)}).")
    except MemoryError as error:
        fail(f"this machine is out of memory ({_first_line(error)}).")
    except OSError as error:
        fail(_plain(error))
    except RuntimeError as error:
        text = str(error)
        if "can't allocate memory" in text:
            fail(f"this machine is out of memory ({_first_line(error)}).")
        if "Connection closed by peer" not in text and "Connection reset by peer" not in text:
            raise
        if not first_process():  # the first one left, and has said why
            raise typer.Exit(1) from error
        fail("a process that trains along has failed; what it said stands above. The last state saved is intact.")


def _plain(error: Exception) -> str:
    """Return what an error says, without the number that the system gives it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else f"{error.strerror}."


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no more is known"])[0]
