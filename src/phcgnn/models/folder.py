"""A model as a folder: ``model.json`` and ``weights.safetensors``, which need nothing else and execute nothing.

``model.json`` holds the architecture and whatever a caller adds to it (featuriser, task, targets, normalisation, seed);
it also holds the digest of the weights, so that a damaged or exchanged file is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from phcgnn._version import __version__
from phcgnn.files import atomic_write
from phcgnn.models.config import PHCGNNConfig
from phcgnn.models.inert import is_pickle
from phcgnn.models.phc_gnn import PHCGNN

__all__ = ["SCHEMA", "ModelFolderError", "SavedModel", "load_model", "save_model"]

SCHEMA = 1
"""Version of the folder's layout; raised when a reader of the old one would misread the new one."""

_JSON, _WEIGHTS = "model.json", "weights.safetensors"
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
_OWN = ("schema", "architecture", "config", "dtype", "weights", "versions")


class ModelFolderError(ValueError):
    """A folder that is not a readable model; nothing in it has been run."""


class SavedModel(NamedTuple):
    """What a folder holds."""

    model: PHCGNN
    metadata: dict[str, Any]
    """What the writer added, and ``versions``."""


def save_model(model: PHCGNN, folder: str | Path, metadata: Mapping[str, Any] | None = None) -> Path:
    """Write a network, of any device and mode.

    Nobody ever sees half a model: a new folder appears whole; in a folder that exists the two files are replaced one
    after the other, and a reader in between sees that they do not belong together.

    Args:
        model: The network; built from names alone, for a file cannot hold the objects given in their place.
        folder: Where to write; other files in it are left alone.
        metadata: More keys for ``model.json``: anything that JSON can hold.

    Returns:
        The folder.

    >>> import tempfile
    >>> model = PHCGNN(node_features=(28,), edge_features=None, n=2, width=8, layers=1, downstream=())
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     saved = load_model(save_model(model, f"{parent}/mine", {"task": "regression"}))
    >>> saved.model.config == model.config, saved.metadata["task"]
    (True, 'regression')
    """
    folder, metadata = Path(folder), dict(metadata or {})
    taken = sorted(metadata.keys() & set(_OWN))
    if taken:
        raise ValueError(f"save_model: `metadata` may not hold {', '.join(map(repr, taken))}, which the folder uses.")
    tensors = {name: value.detach().cpu().contiguous() for name, value in _state(model).items()}
    weights = safetensors.torch.save(tensors, metadata={"format": "pt"})
    description = {
        "schema": SCHEMA,
        "architecture": "PHCGNN",
        "config": model.config.to_dict(),
        "dtype": _dtype_name(model),
        "weights": {"file": _WEIGHTS, "bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()},
        "versions": {"phcgnn": __version__, "torch": torch.__version__, "python": platform.python_version()},
        **metadata,
    }
    text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    _write(folder, {_WEIGHTS: weights, _JSON: text.encode()})
    return folder


def load_model(folder: str | Path, *, device: torch.device | str | None = None) -> SavedModel:
    """Read a network, in eval mode.

    Args:
        folder: What :func:`save_model` wrote.
        device: Where to put the network.

    Raises:
        ModelFolderError: Something is missing, truncated, altered, or was written by a newer version.
    """
    folder = Path(folder)
    description = _read_description(folder)
    weights = _read_weights(folder, description)
    try:
        config = PHCGNNConfig.from_dict(description.pop("config"))
        dtype = _DTYPES[description.pop("dtype")]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"{folder / _JSON}: the architecture cannot be read: {error}") from None
    with torch.random.fork_rng(devices=[]):
        model = PHCGNN.from_config(config, dtype=dtype)
    try:
        tensors = safetensors.torch.load(weights)
    except SafetensorError as error:
        raise ModelFolderError(f"{folder / _WEIGHTS}: not readable ({error}).") from None
    _fill(model, tensors, folder / _WEIGHTS)
    metadata = {key: value for key, value in description.items() if key not in _OWN or key == "versions"}
    return SavedModel(model.to(device).eval(), metadata)


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / _JSON
    if not path.is_file():
        raise ModelFolderError(f"{folder}: no model: there is no {_JSON} in it.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFolderError(f"{path}: truncated, or no JSON ({error}).") from None
    if not isinstance(description, dict) or description.get("architecture") != "PHCGNN":
        raise ModelFolderError(f"{path}: does not describe a PHCGNN.")
    schema = description.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise ModelFolderError(f"{path}: `schema` must be a positive number, got {schema!r}.")
    if schema > SCHEMA:
        wrote = description.get("versions", {})
        raise ModelFolderError(
            f"{path}: written in layout {schema} by phcgnn {wrote.get('phcgnn', '(unknown)')}; this is phcgnn "
            f"{__version__}, which reads up to {SCHEMA}. Install a newer phcgnn."
        )
    return description


def _read_weights(folder: Path, description: Mapping[str, Any]) -> bytes:
    path, expected = folder / _WEIGHTS, description.get("weights")
    if not path.is_file():
        raise ModelFolderError(f"{folder}: no model: there is no {_WEIGHTS} in it.")
    if not isinstance(expected, dict) or not {"bytes", "sha256"} <= expected.keys():
        raise ModelFolderError(f"{folder / _JSON}: `weights` must hold `bytes` and `sha256`.")
    weights = path.read_bytes()
    if is_pickle(weights[:9]):
        raise ModelFolderError(f"{path}: a pickle, which is never read here; save the model with save_model.")
    if len(weights) != expected["bytes"]:
        raise ModelFolderError(f"{path}: has {len(weights)} bytes, expected {expected['bytes']}: truncated or altered.")
    if hashlib.sha256(weights).hexdigest() != expected["sha256"]:
        raise ModelFolderError(f"{path}: its digest is not the one in {_JSON}: altered, or of another model.")
    return weights


def _state(model: PHCGNN) -> dict[str, Tensor]:
    """Return what a network has learned, a shared parameter once."""
    kept, seen = {}, set[int]()
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen.add(id(value))
            kept[name] = value
    return kept


def _dtype_name(model: PHCGNN) -> str:
    return str(next(model.node_encoder.parameters()).dtype).removeprefix("torch.")


def _fill(model: PHCGNN, tensors: Mapping[str, Tensor], path: Path) -> None:
    state = _state(model)
    missing, extra = sorted(state.keys() - tensors.keys()), sorted(tensors.keys() - state.keys())
    wrong = sorted(name for name in state.keys() & tensors.keys() if state[name].shape != tensors[name].shape)
    for what, names in (("lacks", missing), ("has besides", extra), ("has in another shape", wrong)):
        if names:
            raise ModelFolderError(f"{path}: for the network in {_JSON} it {what} {', '.join(names[:5])}.")
    with torch.no_grad():
        for name, value in state.items():
            value.copy_(tensors[name])


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    if folder.is_dir():  # nothing is written beside it: that folder may not be ours to write to
        for name, content in files.items():
            with atomic_write(folder / name) as file:
                file.write(content)
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, content in files.items():
            with atomic_write(staging / name) as file:
                file.write(content)
        staging.chmod(0o777 & ~_umask())
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
