"""The weights that the authors of the paper released."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from phcgnn.models.config import PHCGNNConfig, Skip
from phcgnn.models.inert import UnsafeFileError, is_pickle, read_module_tensors
from phcgnn.models.phc_gnn import PHCGNN

__all__ = ["UnsafeFileError", "load"]

_SKIPS: dict[tuple[int, ...], Skip] = {(4,): "previous", (5, 6, 2): "initial"}
"""By the edges' categories: ZINC, and OGB's molecules."""


def load(
    path: str | Path,
    *,
    skip: Skip | None = None,
    aggregation: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> PHCGNN:
    """Read released weights and return the network in eval mode.

    Takes the original ``model.pt``, a zip that holds a pickled tree of modules, or the same tensors under the same
    names in a ``.safetensors`` file. No class that a pickle names is built and nothing that it asks for is called; a
    file that asks for more than tensors is refused.

    Widths, n, depth and features follow from the tensors' shapes. Two choices leave no trace in them: the skip
    connection, which is taken to be ``previous`` where edges have ZINC's 4 categories and ``initial`` where they have
    those of OGB's molecules; and the aggregation, taken to be ``softmax`` where there is a temperature, else ``sum``.

    Args:
        path: The file.
        skip: The skip connection. (default: by the edges' categories)
        aggregation: The aggregation. (default: by the presence of a temperature)
        device: Where to put the network.
        dtype: Its type. (default: that of the file)
    """
    path = Path(path)
    tensors = _Tensors(_read(path), path)
    config = _infer_config(tensors, skip, aggregation)
    with torch.random.fork_rng(devices=[]):
        model = PHCGNN.from_config(config, dtype=tensors.dtype)
    with torch.no_grad():
        _fill(model, tensors)
    tensors.require_all_used()
    return model.to(device=device, dtype=dtype).eval()


def _read(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        start = file.read(9)
    if is_pickle(start) and start.startswith(b"PK"):
        return read_module_tensors(path)
    if is_pickle(start) or path.suffix in (".pt", ".pth", ".pkl"):
        raise UnsafeFileError(f"{path}: a bare pickle, or no torch file; expected a zip of torch.save or .safetensors.")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UnsafeFileError(f"{path}: not a readable .safetensors file ({error}).") from None


class _Tensors:
    """The tensors of a file, in whichever of the two layouts, each to be taken once."""

    def __init__(self, values: Mapping[str, Tensor], path: Path) -> None:
        self.values = {name: value for name, value in values.items() if not name.endswith("num_batches_tracked")}
        self.path, self.used = path, set[str]()
        self.dtype = next((v.dtype for v in self.values.values() if v.is_floating_point()), torch.float32)

    def __contains__(self, prefix: str) -> bool:
        return any(name == prefix or name.startswith(f"{prefix}.") for name in self.values)

    def one(self, name: str) -> Tensor:
        if name not in self.values:
            raise ValueError(f"{self.path}: no tensor `{name}`, which the released networks have.")
        self.used.add(name)
        return self.values[name]

    def many(self, prefix: str, suffix: str = "") -> list[Tensor]:
        """Take ``prefix.0.suffix``, ``prefix.1.suffix``, ..."""
        count = self.count(prefix)
        return [self.one(f"{prefix}.{i}{suffix}") for i in range(count)]

    def count(self, prefix: str) -> int:
        pattern = re.compile(re.escape(prefix) + r"\.(\d+)(\.|$)")
        found = {int(match[1]) for name in self.values if (match := pattern.match(name))}
        if found != set(range(len(found))):
            raise ValueError(f"{self.path}: `{prefix}.*` has gaps: {sorted(found)}.")
        return len(found)

    def matrices(self, name: str, transposed: bool = False) -> Tensor:
        """Take a list of matrices, or one stacked tensor, whose matrices are transposed if so said."""
        if name in self.values:
            stacked = self.one(name)
            return stacked.mT if transposed else stacked
        return torch.stack(self.many(name))

    def vector(self, name: str) -> Tensor:
        return self.one(name).flatten() if name in self.values else torch.cat(self.many(name))

    def require_all_used(self) -> None:
        left = sorted(self.values.keys() - self.used)
        if left:
            raise ValueError(f"{self.path}: {len(left)} tensors have no place in the network: {', '.join(left[:5])}.")


def _linear_shape(tensors: _Tensors, prefix: str) -> tuple[int, int, int]:
    """Return n and the widths out and in of a PHM layer."""
    weight = tensors.matrices(f"{prefix}.W", transposed=True)
    if weight.dim() != 3:
        raise ValueError(f"{tensors.path}: `{prefix}.W` holds no matrices.")
    n, rows, columns = weight.shape
    return n, n * rows, n * columns


def _categories(tensors: _Tensors, prefix: str) -> tuple[int, ...]:
    return tuple(table.shape[0] for table in tensors.many(f"{prefix}.encoders.0.embeddings", ".weight"))


def _transform(tensors: _Tensors, layer: int) -> str:
    return f"convs.{layer}.transform.transform"


def _infer_config(tensors: _Tensors, skip: Skip | None, aggregation: str | None) -> PHCGNNConfig:
    layers = tensors.count("convs")
    if not layers or "atomencoder" not in tensors:
        raise ValueError(f"{tensors.path}: not a released network: it has no `convs` or no `atomencoder`.")
    mlp = f"{_transform(tensors, 0)}.linear1" in tensors
    n, width, _ = _linear_shape(tensors, _transform(tensors, 0) + (".linear1" if mlp else ""))
    edges = _categories(tensors, "bondencoders.0") if "bondencoders" in tensors else None
    if skip is None:
        if edges not in _SKIPS:
            raise ValueError(
                f"{tensors.path}: the file does not say how its skip connection works, and edge categories {edges} are "
                "not those of a released network; pass skip='initial' or skip='previous'."
            )
        skip = _SKIPS[edges]
    if aggregation is None:
        aggregation = "softmax" if "convs.0.transform.beta" in tensors else "sum"
    hidden = tensors.count("downstream.affine") - 1
    return PHCGNNConfig(
        node_features=_categories(tensors, "atomencoder"),
        edge_features=edges,
        targets=tensors.one("downstream.real_trafo.affine.bias").shape[0],
        n=n,
        width=width,
        layers=layers,
        mp_mlp=mlp,
        aggregation=aggregation,
        skip=skip,
        pooling="attention" if "pooling.linear" in tensors else "sum",
        downstream=tuple(_linear_shape(tensors, f"downstream.affine.{j}")[1] for j in range(hidden)),
    )


def _fill(model: PHCGNN, tensors: _Tensors) -> None:
    fill = _Filler(tensors)
    fill.encoder(model.node_encoder, "atomencoder")
    for layer in range(model.config.layers):
        if model.config.edge_features is not None:
            fill.encoder(model.edge_encoders[layer], f"bondencoders.{layer}")
        conv: Any = model.convs[layer]
        transform = _transform(tensors, layer)
        if model.config.mp_mlp:
            fill.linear(conv.transform.linear1, f"{transform}.linear1")
            fill.norm(conv.transform.norm, f"{transform}.norm")
            fill.linear(conv.transform.linear2, f"{transform}.linear2")
        else:
            fill.linear(conv.transform, transform)
        if model.config.aggregation == "softmax":
            fill.copy(conv.aggr_module.beta, tensors.one(f"convs.{layer}.transform.beta"), "beta")
        fill.norm(model.norms[layer], f"norms.{layer}")
    if model.config.pooling == "attention":
        pool: Any = model.pool
        fill.linear(pool.linear, "pooling.linear")
        fill.affine(pool.real.affine, "pooling.real_trafo.affine")
    predictor: Any = model.predictor
    for j, (linear, norm) in enumerate(zip(predictor.linears, predictor.norms, strict=True)):
        fill.linear(linear, f"downstream.affine.{j}")
        fill.norm(norm, f"downstream.norm.{j}")
    fill.linear(predictor.last, f"downstream.affine.{len(predictor.linears)}")
    fill.affine(predictor.real.affine, "downstream.real_trafo.affine")


class _Filler:
    """Copies tensors to where they belong."""

    def __init__(self, tensors: _Tensors) -> None:
        self.tensors = tensors

    def copy(self, target: Tensor, value: Tensor, name: str) -> None:
        if target.numel() != value.numel() or (value.dim() > 1 and target.shape != value.shape):
            raise ValueError(
                f"{self.tensors.path}: `{name}` has shape {tuple(value.shape)}, expected {tuple(target.shape)}."
            )
        target.copy_(value.view_as(target) if value.dim() <= 1 else value)

    def encoder(self, encoder: Any, prefix: str) -> None:
        components = range(self.tensors.count(f"{prefix}.encoders"))
        tables = [self.tensors.many(f"{prefix}.encoders.{i}.embeddings", ".weight") for i in components]
        rows = [torch.cat(parts, dim=1) for parts in zip(*tables, strict=True)]
        self.copy(encoder.weight, torch.cat(rows), prefix)

    def linear(self, layer: Any, prefix: str) -> None:
        self.copy(layer.rule.constants, self.tensors.matrices(f"{prefix}.phm_rule"), f"{prefix}.phm_rule")
        self.copy(layer.weight, self.tensors.matrices(f"{prefix}.W", transposed=True), f"{prefix}.W")
        self.copy(layer.bias, self.tensors.vector(f"{prefix}.b"), f"{prefix}.b")

    def norm(self, norm: Any, prefix: str) -> None:
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.copy(getattr(norm, name), torch.cat(self.tensors.many(f"{prefix}.bn.bn", f".{name}")), prefix)

    def affine(self, linear: Any, prefix: str) -> None:
        self.copy(linear.weight, self.tensors.one(f"{prefix}.weight"), f"{prefix}.weight")
        self.copy(linear.bias, self.tensors.one(f"{prefix}.bias"), f"{prefix}.bias")
