"""What records the work of a training step once, and then does it again without asking Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

__all__ = ["CudaRecorder", "Recorder", "Work"]

Work = Callable[[], None]


class Recorder(Protocol):
    """Records work that reads and writes tensors which stay where they are."""

    def ahead(self, work: Work) -> None:
        """Do the work now, where that leaves no trace in what is recorded later."""

    def record(self, work: Work) -> Work:
        """Record the work without doing it; return what does it."""


class CudaRecorder:
    """By a CUDA graph: one launch for a whole step, whatever it holds.

    Args:
        device: Where the work is done.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def ahead(self, work: Work) -> None:
        """Do the work on a stream of its own, as torch asks for before a capture."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        torch.cuda.synchronize(self.device)

    def record(self, work: Work) -> Work:
        """Capture the work; random numbers go on from torch's generator at every replay."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay
