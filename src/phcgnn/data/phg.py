"""The ``.phg`` file: safetensors, with the metadata, a schema number and a checksum in the header."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from phcgnn.data.metadata import StoreMetadata
from phcgnn.errors import DataError

__all__ = ["SCHEMA", "read_phg", "write_phg"]

SCHEMA = 1
"""Grows whenever an older phcgnn could not read what a newer one writes."""

FORMAT = "phcgnn.store"

REQUIRED = ("x", "edge_index", "edge_attr", "node_ptr", "edge_ptr")

DTYPES = {
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float32: "F32",
}


def write_phg(path: str | Path, tensors: Mapping[str, Tensor], metadata: StoreMetadata) -> None:
    """Write a store, all or nothing.

    The bytes go to a temporary file in the same folder, reach the disk, and only then take the name. Tensors are
    written from where they lie: safetensors' own writer would first copy them all.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file, e.g. {path / 'store.phg'}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it, or write {path.name} elsewhere.")
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # wide types first: all are aligned
    held = {name: tensors[name].detach().cpu().contiguous() for name in order}
    entries: dict[str, object] = {
        "__metadata__": {
            "format": FORMAT,
            "schema": str(SCHEMA),
            "store": metadata.to_json(),
            "tensors": "\n".join(tensors),
            "sha256": _digest(held, metadata),
        }
    }
    end = 0
    for name, tensor in held.items():
        start, end = end, end + tensor.nbytes
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(len(header).to_bytes(8, "little"))
            file.write(header)
            for tensor in held.values():
                file.write(_bytes(tensor))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read_phg(path: str | Path, *, verify: bool = True) -> tuple[dict[str, Tensor], StoreMetadata]:
    """Map a file into memory; refuse by name what is no store, damaged, or of a newer schema."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {what}; expected a store that `phcgnn data prepare` or `GraphStore.save` wrote.")
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise DataError(f"{path} is a safetensors file, but no phcgnn store; expected one written by phcgnn.")
            _require_schema(path, header.get("schema", ""))
            names = header.get("tensors", "").split("\n")  # in the order in which they were given
            if sorted(names) != sorted(file.keys()) or not {*REQUIRED} <= {*names}:
                raise DataError(f"{path} is damaged: it lacks tensors or has some too many; write it again.")
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise DataError(
            f"{path} is no phcgnn store, or it was cut short ({error}); write it again with `phcgnn data prepare`."
        ) from error
    try:
        metadata = StoreMetadata.from_json(header.get("store", ""))
    except (TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    if verify and _digest(tensors, metadata) != header.get("sha256"):
        raise DataError(f"{path} was altered after it was written: its checksum does not agree; write it again.")
    return tensors, metadata


def _require_schema(path: Path, schema: str) -> None:
    if not schema.isdecimal():
        raise DataError(f"{path} is damaged: its schema number is {schema!r}; write it again.")
    if int(schema) > SCHEMA:
        raise DataError(
            f"{path} has schema {schema}, but this phcgnn reads up to {SCHEMA}; install a newer phcgnn, or write the "
            "store again with this one."
        )


def _digest(tensors: Mapping[str, Tensor], metadata: StoreMetadata) -> str:
    digest = hashlib.sha256(metadata.to_json().encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return (
        memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy().data) if tensor.numel() else memoryview(b"")
    )


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk as well, where folders can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
