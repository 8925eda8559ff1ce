"""What records the work of a training step once, and then does it again without asking Python."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Protocol

import torch

__all__ = ["CudaRecorder", "DeviceLost", "Recorder", "Work", "first_line"]

Work = Callable[[], None]

TIMES = 10
"""So often is a replay done to be timed."""


class DeviceLost(RuntimeError):
    """A recording failed such that the GPU takes no work of this process any more: nothing can go on here."""


class Recorder(Protocol):
    """Records work that reads and writes tensors which stay where they are."""

    def ahead(self, work: Work, *, strict: bool = False) -> None:
        """Do the work now, where that leaves no trace in what is recorded later.

        Args:
            work: What is done.
            strict: Refuse work that makes the host wait for the device, which no recording can hold.
        """

    def record(self, work: Work) -> Work:
        """Record the work without doing it; return what does it."""

    def seconds(self, replay: Work) -> float:
        """Time what was recorded, by doing it some times."""


class CudaRecorder:
    """By a CUDA graph: one launch for a whole step, whatever it holds.

    Args:
        device: Where the work is done.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def ahead(self, work: Work, *, strict: bool = False) -> None:
        """Do the work on the stream of recordings, as torch asks for before a capture."""
        with torch.cuda.device(self.device):
            stream, outer = _stream(torch.cuda.current_device()), torch.cuda.current_stream()
            stream.wait_stream(outer)
            mode = torch.cuda.get_sync_debug_mode()
            try:
                with torch.cuda.stream(stream):
                    if strict:
                        torch.cuda.set_sync_debug_mode("error")
                    work()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
                outer.wait_stream(stream)
                torch.cuda.synchronize()

    def record(self, work: Work) -> Work:
        """Capture the work; random numbers go on from torch's generator at every replay.

        Raises:
            DeviceLost: The capture failed, and the device has been of no use since.
        """
        with torch.cuda.device(self.device):
            index, outer = torch.cuda.current_device(), torch.cuda.current_stream()
            generator = torch.cuda.default_generators[index]
            kept = generator.clone_state()
            graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
            try:
                with torch.cuda.graph(graph, pool=pool, stream=_stream(index)):
                    work()
            except BaseException as error:
                # Where CUDA gave the capture up, torch leaves neither the stream, nor the generator's capturing state,
                # nor the graph's memory pool
                torch.cuda.set_stream(outer)
                generator.graphsafe_set_state(kept)
                with contextlib.suppress(RuntimeError, AttributeError):  # it did leave the pool
                    torch._C._cuda_endAllocateToPool(index, pool)
                _given_up.append(graph)
                _require_alive(self.device, error)
                raise
        return graph.replay

    def seconds(self, replay: Work) -> float:
        """Time ten replays by the clock of the device."""
        with torch.cuda.device(self.device):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            replay()
            torch.cuda.synchronize()
            first.record()
            for _ in range(TIMES):
                replay()
            last.record()
            last.synchronize()
            return float(first.elapsed_time(last)) / 1e3 / TIMES


_given_up: list[torch.cuda.CUDAGraph] = []
"""Kept, for the allocator may ask them where to allocate."""


@functools.cache
def _stream(index: int) -> torch.cuda.Stream:
    """Return the stream of recordings of a device; one for all, as cuBLAS keeps a workspace for each."""
    return torch.cuda.Stream(index)


def _require_alive(device: torch.device, error: BaseException) -> None:
    """Raise :class:`DeviceLost` where a device does not add and answer any more."""
    try:
        torch.cuda.synchronize(device)
        answer = float(torch.ones(2, device=device).sum())
    except RuntimeError as lost:
        answer, why = 0.0, (str(lost).splitlines() or [""])[0]
    else:
        why = f"1 + 1 is {answer:g}"
    if answer != 2:
        raise DeviceLost(
            f"recording the training step failed ({first_line(error)}), and since then the GPU is of no use to this "
            f"process ({why}); start again with --no-compile, or compile=False, which records nothing."
        ) from error


def first_line(error: BaseException) -> str:
    """Return what an error is and the first line of what it says."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
