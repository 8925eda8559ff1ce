"""One data set as a handful of flat tensors."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from phcgnn.data.batching import PaddedShape, assemble, select
from phcgnn.data.flat import FlatGraphs
from phcgnn.data.gathering import OnDevice, OnHost, gathering
from phcgnn.data.indexing import Indices, as_index
from phcgnn.data.loader import GraphLoader
from phcgnn.data.metadata import StoreMetadata
from phcgnn.data.packing import PackedGraphs, pack
from phcgnn.data.phg import read_phg, write_phg
from phcgnn.data.pyg import flatten
from phcgnn.data.texts import Texts
from phcgnn.data.validation import require_packed, require_rows, require_splits, require_targets
from phcgnn.errors import DataError, ShapeError

__all__ = ["GraphStore"]

DERIVED = ("node_ptr_host", "edge_ptr_host", "gathering")


class GraphStore:
    """A data set of graphs as a handful of flat tensors, from which a batch is index arithmetic.

    Build one with :meth:`from_pyg`, :meth:`from_flat` or :meth:`load`. Edges are sorted by destination within each
    graph, edge ends are numbered from 0 within each graph, and integers are held in the smallest type that fits.

    Shapes:
        - **x:** ``(V, F_node)``, **edge_index:** ``(2, E)``, **edge_attr:** ``(E, F_edge)``; no features make 0 columns
        - **node_ptr**, **edge_ptr:** ``(G + 1,)``, int64, always on the CPU: where each graph starts
        - **y:** ``(G, T)`` float32 with NaN for gaps, or ``(G,)`` int64 classes; V for G where a target is a node's
        - **pos:** ``(V, D)``, **weights:** ``(G,)``

    >>> from phcgnn.data import GraphStore, StoreMetadata
    >>> metadata = StoreMetadata(name="pairs", task="regression", targets=("y",), metric="mae", node_features=(5,),
    ...                          edge_features=None)
    >>> pair = torch.tensor([[0, 1], [1, 0]])
    >>> graphs = [Data(x=torch.tensor([[i], [4]]), edge_index=pair, y=float(i)) for i in range(3)]
    >>> store = GraphStore.from_pyg(graphs, metadata=metadata, splits={"train": torch.tensor([0, 1])})
    >>> store
    GraphStore('pairs', 3 graphs, 2.0 nodes and 2.0 edges on average, regression of 1 target, splits: train 2, 0.00 MB)
    >>> batch = store.batch([2, 0])
    >>> batch.x.flatten(), batch.edge_index, batch.y.flatten()
    (tensor([2, 4, 0, 4]), tensor([[1, 0, 3, 2], [0, 1, 2, 3]]), tensor([2., 0.]))
    """

    def __init__(
        self,
        graphs: PackedGraphs,
        *,
        metadata: StoreMetadata,
        y: Tensor | None = None,
        splits: Mapping[str, Tensor] | None = None,
        ids: Texts | None = None,
        smiles: Texts | None = None,
        pos: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.metadata = metadata
        self.x, self.edge_index, self.edge_attr = graphs.x, graphs.edge_index, graphs.edge_attr
        self.node_ptr, self.edge_ptr = graphs.node_ptr, graphs.edge_ptr
        self.y, self.pos, self.weights, self.ids, self.smiles = y, pos, weights, ids, smiles
        self.splits = dict(splits or {})
        self._require_agreement()

    @classmethod
    def from_flat(
        cls,
        chunks: Iterable[FlatGraphs],
        *,
        metadata: StoreMetadata,
        y: Tensor | None,
        splits: Mapping[str, Tensor] | None,
        ids: Sequence[str] | None = None,
        smiles: Sequence[str] | None = None,
        pos: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> GraphStore:
        """Pack runs of flat graphs; one chunk at a time is held beside the result.

        Args:
            chunks: The graphs, in order.
            metadata: What the data set says about itself; every feature is checked against it.
            y: ``(G, T)`` float32 with NaN for gaps, or ``(G,)`` int64 for ``multiclass``.
            splits: Positions of graphs by name, e.g. ``train``, ``val`` and ``test``.
            ids: One a graph.
            smiles: One a graph.
            pos: ``(V, D)``.
            weights: ``(G,)``, how much each graph counts.
        """
        return cls(
            pack(chunks, metadata),
            metadata=metadata,
            y=y,
            splits=splits,
            ids=None if ids is None else Texts.pack(ids),
            smiles=None if smiles is None else Texts.pack(smiles),
            pos=None if pos is None else pos.float(),
            weights=None if weights is None else weights.float(),
        )

    @classmethod
    def from_pyg(
        cls,
        dataset: Iterable[Data],
        *,
        metadata: StoreMetadata,
        splits: Mapping[str, Tensor] | None = None,
        ids: Sequence[str] | None = None,
        smiles: Sequence[str] | None = None,
        weights: Tensor | None = None,
    ) -> GraphStore:
        """Pack a PyG data set or any iterable of ``Data``: its ``x``, ``edge_index``, ``edge_attr``, ``y``, ``pos``.

        An in-memory data set without a transform is taken as it lies, without a loop over its graphs. What else the
        graphs carry is not packed; :meth:`from_flat` explains the arguments.
        """
        flat = flatten(dataset)
        y = flat.y
        if y is not None:
            rows = len(flat.x) if metadata.level == "node" else len(flat.node_counts)
            if metadata.task == "multiclass":
                y = y.reshape(rows) if y.numel() == rows else y
                y = y.to(torch.int64)
            else:
                columns = len(metadata.targets)
                y = (y.reshape(rows, columns) if y.numel() == rows * columns else y).to(torch.float32)
        return cls.from_flat(
            flat.chunks(), metadata=metadata, y=y, splits=splits, ids=ids, smiles=smiles, pos=flat.pos, weights=weights
        )

    def __len__(self) -> int:
        """Count the graphs."""
        return len(self.node_ptr) - 1

    @property
    def device(self) -> torch.device:
        """Where batches are made."""
        return self.edge_index.device

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor by name, as a file holds them."""
        found = {name: getattr(self, name) for name in ("x", "edge_index", "edge_attr", "node_ptr", "edge_ptr")}
        found |= {name: value for name in ("y", "pos", "weights") if (value := getattr(self, name)) is not None}
        for name in ("ids", "smiles"):
            texts: Texts | None = getattr(self, name)
            if texts is not None:
                found |= {f"{name}.data": texts.data, f"{name}.ptr": texts.ptr}
        return found | {f"split.{name}": index for name, index in self.splits.items()}

    def to(self, device: torch.device | str) -> GraphStore:
        """Return a store whose batches are made on ``device``; pointers, splits and texts stay on the CPU."""
        moved = copy.copy(self)
        for name in ("x", "edge_index", "edge_attr", "y", "pos", "weights"):
            value: Tensor | None = getattr(self, name)
            setattr(moved, name, None if value is None else value.to(device))
        return moved

    @cached_property
    def node_ptr_host(self) -> npt.NDArray[np.int64]:
        """``node_ptr`` for numpy."""
        return self.node_ptr.numpy()

    @cached_property
    def edge_ptr_host(self) -> npt.NDArray[np.int64]:
        """``edge_ptr`` for numpy."""
        return self.edge_ptr.numpy()

    @cached_property
    def gathering(self) -> OnHost | OnDevice:
        """Everything that goes into a batch, and the operations to gather it."""
        found = {"edge_index": self.edge_index}
        found |= {name: getattr(self, name) for name in ("x", "edge_attr") if getattr(self, name).shape[1]}
        found |= {name: value for name in ("y", "pos", "weights") if (value := getattr(self, name)) is not None}
        return gathering(found)

    def __setattr__(self, name: str, value: object) -> None:
        for derived in DERIVED:  # made anew from the new value when they are needed
            self.__dict__.pop(derived, None)
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in DERIVED}

    def batch(
        self,
        indices: Indices,
        *,
        shape: PaddedShape | None = None,
        compact: bool = False,
        csr: bool = False,
    ) -> Batch:
        """Gather graphs into one PyG batch on the store's device, without a loop over them.

        The batch is what :meth:`torch_geometric.data.Batch.from_data_list` makes of the same graphs, with edges sorted
        by destination throughout, which ``batch.edges_sorted`` tells. A transform that touches edges has to delete it.

        Args:
            indices: Positions as a list, tensor, slice or mask; any order, repetitions and negative ones allowed.
                A tensor on the GPU is waited for.
            shape: Fill up with ghosts to this shape and add ``node_mask`` and ``graph_mask``; see :meth:`loader`.
            compact: Leave integer features in the store's small types; otherwise they are int64, as models expect.
            csr: Add ``rowptr`` ``(V + 1,)``: the edges into node v are ``rowptr[v]`` up to ``rowptr[v + 1]``.
        """
        return assemble(self, as_index(indices, len(self)), shape=shape, compact=compact, csr=csr)

    def loader(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        generator: torch.Generator | int | None = None,
        drop_last: bool = False,
        pad: bool | PaddedShape = False,
        cut: bool = True,
        split: str | Tensor | None = None,
        compact: bool = False,
        csr: bool = False,
        draw: Tensor | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> GraphLoader:
        """Return an iterable over batches, one epoch an iteration; :class:`GraphLoader` explains the arguments."""
        return GraphLoader(
            self,
            batch_size,
            shuffle=shuffle,
            generator=generator,
            drop_last=drop_last,
            pad=pad,
            cut=cut,
            split=split,
            compact=compact,
            csr=csr,
            draw=draw,
            rank=rank,
            world_size=world_size,
        )

    def save(self, path: str | Path) -> None:
        """Write one ``.phg`` file, all or nothing: a file that was there before is replaced at the very end."""
        write_phg(path, self.tensors(), self.metadata)

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> GraphStore:
        """Read a ``.phg`` file by mapping it into memory.

        Args:
            path: The file.
            verify: Compare the checksum and check every value, which reads the whole file once; sizes and the schema
                are checked in any case.
        """
        tensors, metadata = read_phg(path, verify=verify)
        splits = {name.removeprefix("split."): value for name, value in tensors.items() if name.startswith("split.")}
        texts = {
            name: Texts(tensors[f"{name}.data"], tensors[f"{name}.ptr"])
            for name in ("ids", "smiles")
            if f"{name}.ptr" in tensors
        }
        parts = {field.name: tensors[field.name] for field in fields(PackedGraphs)}
        try:
            store = cls(
                PackedGraphs(**parts),
                metadata=metadata,
                splits=splits,
                y=tensors.get("y"),
                pos=tensors.get("pos"),
                weights=tensors.get("weights"),
                ids=texts.get("ids"),
                smiles=texts.get("smiles"),
            )
            if verify:
                require_packed(parts, metadata)
        except (TypeError, ValueError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        return store

    @overload
    def __getitem__(self, index: int) -> Data: ...
    @overload
    def __getitem__(self, index: Indices) -> GraphStore: ...
    def __getitem__(self, index: int | Indices) -> Data | GraphStore:
        """Return one graph as ``Data``, or a store of the chosen graphs whose splits follow them."""
        if isinstance(index, int | np.integer) or (isinstance(index, Tensor) and index.dim() == 0):
            return self._graph(int(as_index([int(index)], len(self))[0]))
        chosen = as_index(index, len(self))
        graphs, nodes = select(self, chosen)
        where = torch.from_numpy(chosen)
        there = where.to(self.device)

        def pick(values: Tensor | None, rows: Tensor) -> Tensor | None:
            return None if values is None else values.index_select(0, rows)

        members = {name: torch.isin(where, split).nonzero().flatten() for name, split in self.splits.items()}
        return GraphStore(
            graphs,
            metadata=self.metadata,
            y=pick(self.y, nodes if self.metadata.level == "node" else there),
            splits=members,
            ids=None if self.ids is None else self.ids.select(where),
            smiles=None if self.smiles is None else self.smiles.select(where),
            pos=pick(self.pos, nodes),
            weights=pick(self.weights, there),
        )

    def __iter__(self) -> Iterator[Data]:
        return (self._graph(i) for i in range(len(self)))

    def _graph(self, i: int) -> Data:
        nodes = slice(*self.node_ptr_host[i : i + 2].tolist())
        edges = slice(*self.edge_ptr_host[i : i + 2].tolist())
        data = Data(edge_index=self.edge_index[:, edges].long())
        if self.x.shape[1]:
            data.x = _plain(self.x[nodes])
        else:
            data.num_nodes = nodes.stop - nodes.start
        if self.edge_attr.shape[1]:
            data.edge_attr = _plain(self.edge_attr[edges])
        if self.y is not None:
            data.y = self.y[nodes if self.metadata.level == "node" else slice(i, i + 1)]
        if self.pos is not None:
            data.pos = self.pos[nodes]
        if self.weights is not None:
            data.weight = self.weights[i : i + 1]
        if self.ids is not None:
            data.id = self.ids[i]
        if self.smiles is not None:
            data.smiles = self.smiles[i]
        return data

    def _require_agreement(self) -> None:
        for name, ptr, rows in (
            ("node_ptr", self.node_ptr, len(self.x)),
            ("edge_ptr", self.edge_ptr, self.edge_index.shape[-1]),
        ):
            if ptr.dim() != 1 or ptr.dtype != torch.int64 or len(ptr) == 0:
                raise TypeError(f"`{name}` must be a vector of int64 that starts with 0, got {ptr.dtype}.")
            if int(ptr[0]) != 0 or int(ptr[-1]) != rows or bool((ptr.diff() < 0).any()):
                raise DataError(f"`{name}` must rise from 0 to {rows}, the number of rows.")
        if len(self.edge_ptr) != len(self.node_ptr):
            raise ShapeError("`edge_ptr`", got=self.edge_ptr.shape, expected=self.node_ptr.shape)
        graphs, nodes = len(self), len(self.x)
        if self.y is not None:
            require_targets(self.y, self.metadata, nodes if self.metadata.level == "node" else graphs)
        if self.pos is not None:
            require_rows("pos", self.pos, nodes, self.pos.shape[-1])
        if self.weights is not None:
            require_rows("weights", self.weights, graphs)
            if not bool((self.weights.isfinite() & (self.weights >= 0)).all()):
                raise DataError("`weights` must be finite and not negative.")
        for name in ("ids", "smiles"):
            texts: Texts | None = getattr(self, name)
            if texts is not None and len(texts) != graphs:
                raise DataError(f"there are {graphs} graphs, but {len(texts)} {name}.")
        require_splits(self.splits, graphs)

    def __repr__(self) -> str:
        graphs = max(len(self), 1)
        count = len(self.metadata.targets)
        parts = [
            repr(self.metadata.name),
            f"{len(self):,} graph{'s' * (len(self) != 1)}",
            f"{len(self.x) / graphs:.1f} nodes and {self.edge_index.shape[1] / graphs:.1f} edges on average",
            f"{self.metadata.task} of {count} target{'s' * (count != 1)}",
        ]
        if self.splits:
            parts.append("splits: " + " / ".join(f"{name} {len(split):,}" for name, split in self.splits.items()))
        parts.append(f"{self.nbytes / 1e6:.2f} MB")
        if self.device.type != "cpu":
            parts.append(f"on {self.device}")
        return f"GraphStore({', '.join(parts)})"


def _plain(values: Tensor) -> Tensor:
    return values if values.is_floating_point() else values.long()
