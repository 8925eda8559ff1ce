"""Named tensors and a text in one safetensors file: atomic to write, mapped and checked on reading, never executed.

Stores, weights and checkpoints are such files; each has its own format name and schema number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from phcgnn.errors import DataError
from phcgnn.files import atomic_write

__all__ = ["read_tensors", "write_tensors"]

DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], text: str, *, format: str, schema: int) -> None:
    """Write named tensors and a text, all or nothing.

    Tensors are written from where they lie: safetensors' own writer would first copy them all.

    Args:
        path: The file; replaced at the very end if it is there.
        tensors: By name.
        text: Kept in the header beside them, e.g. JSON.
        format: What the file is, e.g. ``phcgnn.store``.
        schema: Grows whenever an older phcgnn could not read what a newer one writes.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # wide types first: all are aligned
    held = {name: tensors[name].detach().cpu().contiguous() for name in order}
    about = {"format": format, "schema": str(schema), "text": text, "sha256": _digest(held, text)}
    entries: dict[str, object] = {"__metadata__": about}
    end = 0
    for name, tensor in held.items():
        start, end = end, end + tensor.nbytes
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with atomic_write(path) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for tensor in held.values():
            file.write(_bytes(tensor))


def read_tensors(
    path: str | Path, *, format: str, schema: int, remedy: str, verify: bool = True
) -> tuple[dict[str, Tensor], str]:
    """Map a file into memory; refuse by name what is something else, damaged, altered, or of a newer schema.

    Args:
        path: The file.
        format: What it must be.
        schema: The newest schema that can be read.
        remedy: What the reader of an error shall do, e.g. ``write it again with `phcgnn data prepare```.
        verify: Compare the checksum, which reads the whole file once.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {what}; expected a file of the kind {format}: {remedy}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            about = file.metadata() or {}
            if about.get("format") != format:
                found = about.get("format", "another program's")
                raise DataError(f"{path} is a safetensors file of the kind {found}, expected {format}: {remedy}.")
            _require_schema(path, about.get("schema", ""), schema, remedy)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise DataError(f"{path} is no {format} file, or it was cut short ({error}); {remedy}.") from error
    text = about.get("text", "")
    if verify and _digest(tensors, text) != about.get("sha256"):
        raise DataError(f"{path} was altered after it was written: its checksum does not agree; {remedy}.")
    return tensors, text


def _require_schema(path: Path, found: str, known: int, remedy: str) -> None:
    if not (found.isascii() and found.isdecimal() and 1 <= len(found) <= 9 and int(found) >= 1):
        raise DataError(f"{path} is damaged: its schema number is {found[:20]!r}; {remedy}.")
    if int(found) > known:
        raise DataError(
            f"{path} has schema {found}, but this phcgnn reads up to {known}; install a newer phcgnn, or {remedy}."
        )


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
