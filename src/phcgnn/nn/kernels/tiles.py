"""How rows and channels are divided among the programs of a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from phcgnn.nn.kernels.language import tl

__all__ = ["Tile", "choose", "wide"]

MOST_CHANNELS = 128


class Tile(NamedTuple):
    """What one program works on.

    Attributes:
        rows: Rows, a power of two.
        channels: Channels, a power of two; they lie side by side in memory, so threads that lie side by side read them.
        unroll: So many elements of each row are asked for at once.
    """

    rows: int
    channels: int
    unroll: int

    def grid(self, rows: int, width: int) -> tuple[int, int]:
        """Return how many programs there are, along the rows and along the channels."""
        return -(-rows // self.rows), -(-width // self.channels)

    def options(self) -> dict[str, Any]:
        """Return what a kernel is told of it."""
        return {
            "ROWS": self.rows,
            "CHANNELS": self.channels,
            "UNROLL": self.unroll,
            "num_warps": 4,
            "enable_fp_fusion": False,
        }


def choose(width: int, cells: int, elements: float = 1.0, most: int = MOST_CHANNELS) -> Tile:
    """Choose the tile for rows of a width.

    Args:
        width: Channels of a row.
        cells: Rows times channels of a tile.
        elements: How many elements an average row has.
        most: Channels of a tile at most.

    >>> choose(304, 512), choose(225, 512), choose(7, 512, elements=9.3)
    (Tile(rows=8, channels=64, unroll=2), Tile(rows=4, channels=128, unroll=2), Tile(rows=64, channels=8, unroll=4))
    """
    smallest = 1 << (width - 1).bit_length()
    sizes = [size for size in (128, 64, 32) if size <= min(smallest, most)] or [smallest]
    channels = min(sizes, key=lambda size: -(-width // size) * size)  # the largest of those that waste least
    return Tile(max(1, cells // channels), channels, 4 if elements > 4 else 2)


def wide(*tensors: Tensor) -> tuple[torch.dtype, object]:
    """Return the type to add in, float32 or wider, for torch and for Triton.

    >>> wide(torch.ones(1, dtype=torch.bfloat16))[0]
    torch.float32
    """
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype, getattr(tl, "float64" if dtype == torch.float64 else "float32", None)
