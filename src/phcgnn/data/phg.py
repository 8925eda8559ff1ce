"""The ``.phg`` file: a store's tensors, and in the header its metadata, a schema number and a checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from phcgnn.data.metadata import StoreMetadata
from phcgnn.errors import DataError
from phcgnn.tensorfile import read_tensors, write_tensors

__all__ = ["SCHEMA", "read_phg", "write_phg"]

SCHEMA = 1
"""Grows whenever an older phcgnn could not read what a newer one writes."""

FORMAT = "phcgnn.store"

REQUIRED = frozenset(("x", "edge_index", "edge_attr", "node_ptr", "edge_ptr"))

REMEDY = "write it again with `phcgnn data prepare` or `GraphStore.save`"


def write_phg(path: str | Path, tensors: Mapping[str, Tensor], metadata: StoreMetadata) -> None:
    """Write a store, all or nothing."""
    text = json.dumps({"store": json.loads(metadata.to_json()), "tensors": list(tensors)}, sort_keys=True)
    write_tensors(path, tensors, text, format=FORMAT, schema=SCHEMA)


def read_phg(path: str | Path, *, verify: bool = True) -> tuple[dict[str, Tensor], StoreMetadata]:
    """Map a file into memory; refuse by name what is no store, damaged, altered, or of a newer schema.

    The tensors come in the order in which they were written, since a file of safetensors keeps none.
    """
    found, text = read_tensors(path, format=FORMAT, schema=SCHEMA, remedy=REMEDY, verify=verify)
    try:
        about = json.loads(text)
        metadata = StoreMetadata.from_json(json.dumps(about["store"]))
        tensors = {name: found[name] for name in about["tensors"]}
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); {REMEDY}.") from error
    if missing := REQUIRED - tensors.keys():
        raise DataError(f"{path} is damaged: it lacks {', '.join(sorted(missing))}; {REMEDY}.")
    return tensors, metadata
