"""A run's whole state as one file: nested dicts of tensors and plain values in, the same out, nothing executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phcgnn.errors import DataError
from phcgnn.tensorfile import read_tensors, write_tensors

__all__ = ["random_state", "read_checkpoint", "restore_random_state", "write_checkpoint"]

FORMAT, SCHEMA = "phcgnn.checkpoint", 1


def write_checkpoint(path: str | Path, state: dict[str, Any]) -> None:
    """Write a state of nested dicts and lists of tensors, numbers, texts, bools and None; all or nothing."""
    tensors: dict[str, Tensor] = {}
    write_tensors(path, tensors, json.dumps(_strip(state, tensors)), format=FORMAT, schema=SCHEMA)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read what :func:`write_checkpoint` wrote; a file that was cut short or altered is refused."""
    remedy = "start the run anew with --overwrite"
    tensors, text = read_tensors(path, format=FORMAT, schema=SCHEMA, remedy=remedy)
    state = _fill(json.loads(text), tensors)
    if not isinstance(state, dict):
        raise DataError(f"{path} is damaged: {remedy}.")
    return state


def random_state() -> dict[str, Any]:
    """Return where torch's generators stand, the CPU's and every GPU's."""
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": list(gpus)}


def restore_random_state(state: dict[str, Any]) -> None:
    """Put torch's generators back; on a machine with another number of GPUs those keep their own."""
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def _strip(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Replace every tensor by its name and write down what JSON would lose: the kinds of keys."""
    if isinstance(value, Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _strip(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        return {"tuple" if isinstance(value, tuple) else "list": [_strip(entry, tensors) for entry in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint holds tensors and plain values, got {type(value).__name__}.")


def _fill(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _fill(entry, tensors) for key, entry in content}
    entries = [_fill(entry, tensors) for entry in content]
    return tuple(entries) if kind == "tuple" else entries
