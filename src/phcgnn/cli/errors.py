"""How a command fails: one message on stderr, 1 for what went wrong, 2 for what was asked wrongly."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

import typer

__all__ = ["fail", "failures", "usage"]


def fail(message: object) -> NoReturn:
    """Print what went wrong and leave with 1."""
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(1)


@contextlib.contextmanager
def usage(*, about: str | None = None) -> Iterator[None]:
    """Turn what the library refuses into wrong usage: exit code 2."""
    try:
        yield
    except (TypeError, ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error), param_hint=about) from error


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
    except Interrupted as error:
        fail(f"stopped by {error}; the state is saved, and the same command with --resume goes on from there.")
    except torch.OutOfMemoryError as error:
        size = "" if batch_size is None else f" at batch size {batch_size}; try --batch-size {max(batch_size // 2, 1)}"
        fail(f"the GPU is out of memory{size} ({str(error).splitlines()[0]}).")
    except OSError as error:
        fail(f"{error.strerror or error}: {error.filename}" if error.filename else error)
    except (NonFiniteLoss, ValueError) as error:
        fail(error)
