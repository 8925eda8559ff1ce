"""Epochs of batches: their order, their padding, their place in a run, and the share of each rank."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Batch

from phcgnn.data.batching import PaddedShape, assemble
from phcgnn.data.indexing import as_index
from phcgnn.errors import DataError, ShapeError, require_positive

if TYPE_CHECKING:
    from phcgnn.data.graphs import GraphStore

__all__ = ["GraphLoader"]

Index = npt.NDArray[np.int64]

_log = logging.getLogger("phcgnn")

DEVIATIONS = 4
"""How many standard deviations above the expected size of a batch the padded shape lies."""

FEW = 0.05
"""A share of an epoch's batches that need not fit the shape without a word."""

MULTIPLE = 8
"""Padded numbers of nodes and edges are multiples of this."""


class GraphLoader:
    r"""Batches of a store, one epoch an iteration.

    The order of epoch e depends on one seed and e alone. :meth:`state_dict`, taken while a batch is in hand, resumes
    with the batch after it. An iteration that was broken off counts as an epoch; the next one starts the next, and the
    one before cannot go on.

    **Padding.** With ``pad`` every batch has one shape: its graphs, then empty ones where the batch is short, then one
    ghost graph that holds all ghost nodes (features 0) and ghost edges (loops on ghost nodes). Targets of graphs that
    are not real are NaN, or -100 for classes. ``node_mask`` and ``graph_mask`` are True where something is real.
    The shape leaves room for the expected size of a batch of B graphs plus :math:`4 \sigma \sqrt B`, never more than
    the B largest graphs need (B times the largest one with ``draw``, by which graphs are then expected), never less
    than the largest one needs. A batch that would not fit ends early, and the graph that did not fit starts the next
    batch: nothing fails, nothing is lost, an epoch just has one batch more. With ``cut=False`` it stays whole and is
    not padded instead, so that batches hold the same graphs as without ``pad``, and a run may go on with or without it.

    **Ranks.** Every rank plans the same epoch. With ``shuffle``, without ``pad``, a step's ``batch_size * world_size``
    graphs are those that a single process with that batch size would take, shared evenly, the last step included. With
    ``pad`` each rank takes every ``world_size``-th batch, and the last round is completed with batches from the start
    of the epoch (or cut, with ``drop_last``). Without ``shuffle`` nothing is repeated, so that scores over all ranks
    count every graph once.

    Args:
        store: Where the graphs are; batches are made on its device.
        batch_size: Graphs a batch.
        shuffle: Draw a new order every epoch.
        generator: A seed, or a generator that one seed is drawn from now; None draws it from torch's global generator.
        drop_last: Leave out the last batch where it is short.
        pad: True to choose the shape as above, or a shape, e.g. another loader's :attr:`shape`.
        cut: Whether a batch that would not fit the shape ends early.
        split: A split's name, or positions; None takes every graph.
        compact: See :meth:`GraphStore.batch`.
        csr: See :meth:`GraphStore.batch`.
        draw: One weight a member of the split: an epoch draws as many graphs as there are, with replacement, in
            proportion to them. Needs ``shuffle``.
        rank: Which share of the batches this process takes.
        world_size: How many shares there are.
    """

    def __init__(
        self,
        store: GraphStore,
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
    ) -> None:
        where = "GraphStore.loader"
        require_positive(where, batch_size=batch_size, world_size=world_size)
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world_size:
            raise ValueError(f"{where}: `rank` must be from 0 to world_size - 1 = {world_size - 1}, got {rank!r}.")
        if shuffle and world_size > 1 and generator is None:
            raise ValueError(f"{where}: `shuffle` over ranks needs a `generator` with the same seed on every rank.")
        self.store, self.batch_size, self.shuffle, self.drop_last = store, batch_size, shuffle, drop_last
        self.compact, self.csr, self.rank, self.world_size = compact, csr, rank, world_size
        self.members = _members(store, split)
        self.draw = _require_draw(draw, len(self.members), shuffle)
        self.seed = _draw_seed(generator) if shuffle else 0
        self._nodes = np.diff(store.node_ptr_host)[self.members]
        self._edges = np.diff(store.edge_ptr_host)[self.members]
        self.shape = self._choose_shape(pad)
        self._limit = self.shape if cut else None
        """What batches are cut to."""
        self.epoch = 0
        self.position = 0
        self._resumed = True
        self._iteration = 0
        self._planned: tuple[int, list[Index]] | None = None
        self._told = False

    def __len__(self) -> int:
        """Count this rank's batches of the epoch that runs, or that comes next where none does."""
        return len(self._plan(self.epoch))

    def __iter__(self) -> Iterator[Batch]:
        """Run the next epoch, or what is left of one after :meth:`load_state_dict`."""
        if not self._resumed:
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed = False
        self._iteration = own = self._iteration + 1
        plan = self._plan(self.epoch)
        self._warn_of_misfits(plan)
        while self.position < len(plan):
            if self._iteration != own:
                raise RuntimeError(
                    "GraphLoader: a later iteration of this loader has begun, and both would move one position; make a "
                    "second loader with `store.loader(...)`."
                )
            index = plan[self.position]
            self.position += 1
            shape = self.shape if self._fits(index) else None
            yield assemble(self.store, index, shape=shape, compact=self.compact, csr=self.csr)
        self.epoch, self.position, self._resumed = self.epoch + 1, 0, True

    def indices(self) -> list[Tensor]:
        """Return the positions in the store of the graphs in each batch of the epoch that runs or comes next."""
        return [torch.from_numpy(index) for index in self._plan(self.epoch)]

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the run: small, plain numbers, the same on every rank."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "order": self._order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place in a run of a loader of the same data and settings; the next iteration starts there."""
        found, own = dict(state["order"]), self._order()
        wrong = [f"{name} is {own[name]}, was {found.get(name)}" for name in own if own[name] != found.get(name)]
        if wrong:
            raise ValueError(f"GraphLoader: this state belongs to another loader: {'; '.join(wrong)}.")
        self.epoch, self.position, self.seed = int(state["epoch"]), int(state["position"]), int(state["seed"])
        self._resumed, self._planned = True, None

    def _order(self) -> dict[str, Any]:
        """Return everything that the order of batches depends on."""
        return {
            "graphs": len(self.members),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "drawn": self.draw is not None,
            "world_size": self.world_size,
            "shape": None if self._limit is None else [self._limit.graphs, self._limit.nodes, self._limit.edges],
        }

    def _plan(self, epoch: int) -> list[Index]:
        if self._planned is None or self._planned[0] != epoch:
            order = self._permutation(epoch)
            together = self.shuffle and self._limit is None and self.world_size > 1
            self._planned = (epoch, self._share_steps(order) if together else self._share(self._cut(order)))
        return self._planned[1]

    def _permutation(self, epoch: int) -> Index:
        if not self.shuffle:
            return np.arange(len(self.members))
        generator = torch.Generator().manual_seed((self.seed + epoch * 0x9E3779B97F4A7C15) % 2**63)
        if self.draw is not None:
            return torch.multinomial(self.draw, len(self.draw), replacement=True, generator=generator).numpy()
        return torch.randperm(len(self.members), generator=generator).numpy()

    def _cut(self, order: Index) -> list[Index]:
        """Cut an order of members into batches, earlier than at the batch size where the shape is full."""
        size, count = self.batch_size, len(order)
        if self._limit is None:
            cuts = [*range(0, count, size), count]
        else:
            ends = [np.concatenate([[0], np.cumsum(rows[order])]) for rows in (self._nodes, self._edges)]
            room = (self._limit.nodes - 1, self._limit.edges)
            cuts = [0]
            while (start := cuts[-1]) < count:
                full = (
                    int(np.searchsorted(e, e[start] + r, side="right")) - 1 for e, r in zip(ends, room, strict=True)
                )
                cuts.append(min(start + size, *full))
        batches = [self.members[order[a:b]] for a, b in itertools.pairwise(cuts) if b > a]
        if self.drop_last and batches and len(batches[-1]) < size:
            batches.pop()
        return batches

    def _share_steps(self, order: Index) -> list[Index]:
        """Share every step's graphs among the ranks.

        A last step of fewer graphs than ranks joins the one before; where there is none, its graphs are repeated.
        """
        size = self.batch_size * self.world_size
        if self.drop_last:
            order = order[: len(order) // size * size]
        elif len(order) < self.world_size:
            order = np.resize(order, self.world_size if len(order) else 0)
        cuts = list(range(0, len(order), size))
        if len(cuts) > 1 and len(order) - cuts[-1] < self.world_size:
            cuts.pop()
        steps = np.split(order, cuts[1:]) if cuts else []
        return [self.members[np.array_split(step, self.world_size)[self.rank]] for step in steps]

    def _share(self, batches: list[Index]) -> list[Index]:
        if self.shuffle and batches and (over := len(batches) % self.world_size):
            if self.drop_last:
                batches = batches[: len(batches) - over]
            else:
                batches = batches + [batches[i % len(batches)] for i in range(self.world_size - over)]
        return batches[self.rank :: self.world_size]

    def _fits(self, index: Index) -> bool:
        """Whether a batch is to be padded."""
        if self.shape is None or self._limit is not None:
            return self.shape is not None
        nodes, edges = (
            int((ptr[index + 1] - ptr[index]).sum()) for ptr in (self.store.node_ptr_host, self.store.edge_ptr_host)
        )
        return nodes < self.shape.nodes and edges <= self.shape.edges

    def _warn_of_misfits(self, plan: list[Index]) -> None:
        """Say once where many batches do not fit the shape and stay as they are."""
        if self._told or self.shape is None or self._limit is not None:
            return
        self._told = True
        over = sum(not self._fits(index) for index in plan)
        if over > FEW * len(plan):
            _log.info(
                "%d of %d batches of an epoch have more nodes or edges than %r; they are not padded, and take the "
                "plain step",
                over,
                len(plan),
                self.shape,
            )

    def _choose_shape(self, pad: bool | PaddedShape) -> PaddedShape | None:
        if pad is False:
            return None
        size = min(self.batch_size, len(self.members))
        if pad is True:
            nodes, edges = (_room(counts, size, self.draw) for counts in (self._nodes, self._edges))
            return PaddedShape(self.batch_size + 1, _multiple(nodes + 1), _multiple(edges))
        if not isinstance(pad, PaddedShape):
            raise TypeError(f"GraphStore.loader: `pad` must be a bool or a PaddedShape, got {pad!r}.")
        largest = PaddedShape(self.batch_size + 1, int(self._nodes.max(initial=0)) + 1, int(self._edges.max(initial=0)))
        if pad.graphs < largest.graphs or pad.nodes < largest.nodes or pad.edges < largest.edges:
            raise ValueError(
                f"GraphStore.loader: `pad` must be at least {largest}, which the largest graph needs, got {pad}."
            )
        return pad

    def __repr__(self) -> str:
        parts = [f"{len(self.members):,} graphs", f"batch_size={self.batch_size}", f"shuffle={self.shuffle}"]
        if self.shape is not None:
            parts.append(f"shape={self.shape}")
        if self.world_size > 1:
            parts.append(f"rank={self.rank} of {self.world_size}")
        return f"GraphLoader({', '.join(parts)})"


def _members(store: GraphStore, split: str | Tensor | None) -> Index:
    if split is None:
        return np.arange(len(store), dtype=np.int64)
    if isinstance(split, str):
        if split not in store.splits:
            known = ", ".join(store.splits) or "none"
            raise DataError(f"GraphStore: there is no split {split!r} in {store.metadata.name!r}; it has {known}.")
        split = store.splits[split]
    return as_index(split, len(store))


def _require_draw(draw: Tensor | None, members: int, shuffle: bool) -> Tensor | None:
    if draw is None:
        return None
    if not shuffle:
        raise ValueError("GraphStore.loader: `draw` needs shuffle=True.")
    if draw.shape != (members,):
        raise ShapeError("GraphStore.loader: `draw`", got=draw.shape, expected=(members,))
    if not (bool((draw >= 0).all()) and float(draw.sum()) > 0):
        raise ValueError("GraphStore.loader: `draw` must hold weights of at least 0, not all of them 0.")
    return draw.double().cpu()


def _draw_seed(generator: torch.Generator | int | None) -> int:
    if isinstance(generator, int):
        return generator
    return int(torch.randint(2**62, (), generator=generator))


def _room(counts: Index, size: int, draw: Tensor | None = None) -> int:
    """Return how many rows a batch of ``size`` graphs gets, drawn with replacement where ``draw`` says how often."""
    if not len(counts):
        return 0
    if draw is None:
        most = int(np.partition(counts, len(counts) - size)[len(counts) - size :].sum())
        mean, deviation = counts.mean(), counts.std()
    else:
        share = draw.numpy() / float(draw.sum())
        most = size * int(counts[share > 0].max())
        mean = share @ counts
        deviation = math.sqrt(share @ (counts - mean) ** 2)
    likely = math.ceil(size * mean + DEVIATIONS * deviation * math.sqrt(size))
    return max(min(most, likely), int(counts.max()))


def _multiple(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE
