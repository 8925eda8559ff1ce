"""The weights that a run started from, kept beside those that it ended with, so that a report can show both."""

from __future__ import annotations

import copy
from pathlib import Path

from phcgnn.models import PHCGNN
from phcgnn.tensorfile import read_tensors, write_tensors

__all__ = ["START_FILE", "load_start", "save_start"]

START_FILE = "start.safetensors"
"""Its name in a run's folder."""

FORMAT, SCHEMA = "phcgnn.start", 1


def save_start(model: PHCGNN, path: str | Path) -> None:
    """Write a network's weights as they are now.

    The seed alone would not bring them back: a GPU draws other numbers than the CPU from the same seed.
    """
    write_tensors(path, model.state_dict(), "", format=FORMAT, schema=SCHEMA)


def load_start(model: PHCGNN, path: str | Path) -> PHCGNN:
    """Return a copy of a network with the weights that it started from."""
    tensors, _ = read_tensors(path, format=FORMAT, schema=SCHEMA, remedy="delete it; reports then show the end alone")
    start = copy.deepcopy(model)
    start.load_state_dict(tensors)
    return start.eval()
