"""Many short texts in two arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import torch
from torch import Tensor

from phcgnn.errors import DataError

__all__ = ["Texts"]


class Texts(Sequence[str]):
    """A sequence of texts as their UTF-8 bytes laid end to end: no Python object a text, and ready for a file.

    Args:
        data: All bytes.
        ptr: Where each text starts, and where the last one ends.

    Shapes:
        - **data:** ``(bytes,)``, uint8
        - **ptr:** ``(texts + 1,)``, int64

    >>> texts = Texts.pack(["CCO", "", "Å"])
    >>> texts[0], texts[-1], len(texts), list(texts[:2])
    ('CCO', 'Å', 3, ['CCO', ''])
    """

    def __init__(self, data: Tensor, ptr: Tensor) -> None:
        self.data, self.ptr = data, ptr

    @classmethod
    def pack(cls, texts: Iterable[str]) -> Texts:
        """Lay texts end to end."""
        encoded = []
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"Texts: entry {number} must be a str, got {text!r} ({type(text).__name__}).")
            try:
                encoded.append(text.encode())
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"Texts: entry {number}, {text!r}, cannot be written as UTF-8: {error.reason}."
                ) from None
        ptr = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=ptr[1:])
        data = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
        return cls(torch.from_numpy(data) if len(data) else torch.empty(0, dtype=torch.uint8), torch.from_numpy(ptr))

    def require_sound(self, name: str, *, bytes_too: bool = True) -> None:
        """Check what a file held: pointers that rise from the first byte to the last, and texts between them.

        Args:
            name: What the texts are called in a message.
            bytes_too: Whether the texts themselves are read, or the pointers alone.

        >>> Texts(torch.tensor([67, 200], dtype=torch.uint8), torch.tensor([0, 2])).require_sound("ids")
        Traceback (most recent call last):
        phcgnn.errors.DataError: `ids` hold bytes that are no UTF-8 text.
        """
        data, ptr = self.data, self.ptr
        if data.dim() != 1 or data.dtype != torch.uint8:
            raise DataError(f"`{name}.data` must be a vector of uint8, got {data.dtype} of shape {tuple(data.shape)}.")
        if ptr.dim() != 1 or ptr.dtype != torch.int64 or not len(ptr):
            raise DataError(f"`{name}.ptr` must be a vector of int64, got {ptr.dtype} of shape {tuple(ptr.shape)}.")
        if int(ptr[0]) != 0 or int(ptr[-1]) != len(data) or bool((ptr[1:] < ptr[:-1]).any()):
            raise DataError(f"`{name}.ptr` must rise from 0 to {len(data)}, the number of bytes.")
        if not bytes_too:
            return
        try:
            data.numpy().tobytes().decode()
        except UnicodeDecodeError:
            raise DataError(f"`{name}` hold bytes that are no UTF-8 text.") from None
        starts = data[ptr[:-1][ptr[:-1] < len(data)]]
        if bool(((starts & 0xC0) == 0x80).any()):  # the second or a later byte of a letter
            raise DataError(f"`{name}.ptr` cuts a letter in two.")

    def select(self, index: Tensor) -> Texts:
        """Return the texts at these positions."""
        return Texts.pack(self[int(i)] for i in index)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return self.select(torch.tensor(range(len(self))[index], dtype=torch.int64))
        if not -len(self) <= index < len(self):
            raise IndexError(f"Texts: index {index} is out of range, there are {len(self)}.")
        start, end = self.ptr[index % len(self) : index % len(self) + 2].tolist()
        return self.data[start:end].numpy().tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Texts):
            return NotImplemented
        return torch.equal(self.ptr, other.ptr) and torch.equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Texts({len(self)} texts, {len(self.data)} bytes)"
