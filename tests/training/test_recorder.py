"""What surrounds a CUDA graph, on a CPU: torch.cuda is played by a stand-in that notes what is asked of it."""

from __future__ import annotations

import contextlib

import pytest
import torch

from phcgnn.training import recorder
from phcgnn.training.recorder import CudaRecorder, DeviceLost

CUDA = torch.device("cuda", 1)


class Stream:
    def __init__(self, name):
        self.name, self.waited = name, []

    def wait_stream(self, other):
        self.waited.append(other.name)


class Generator:
    state = "kept"

    def clone_state(self):
        return self.state

    def graphsafe_set_state(self, state):
        self.state = state


class Cuda:
    """One device, its current stream, its generator, and how strict it is."""

    def __init__(self, monkeypatch):
        self.current, self.made, self.mode, self.synchronised = Stream("outer"), [], 0, 0
        self.outer, self.generator, self.inside = self.current, Generator(), []
        self.breaks, self.dead, self.pool = False, False, None
        for name in ("device", "current_stream", "set_stream", "stream", "synchronize", "graph", "current_device"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "Stream", self.make)
        monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: self.mode)
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: setattr(self, "mode", mode))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: self)
        monkeypatch.setattr(torch.cuda, "default_generators", {1: self.generator})
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end_pool, raising=False)
        monkeypatch.setattr(recorder, "_given_up", [])
        ones = torch.ones
        monkeypatch.setattr(torch, "ones", lambda *size, device: ones(*size))

    def make(self, index):
        self.made.append(index)
        return Stream(f"own {index}")

    @contextlib.contextmanager
    def device(self, device):
        self.inside.append(device)
        yield

    def current_device(self):
        return 1

    def current_stream(self):
        return self.current

    def set_stream(self, stream):
        self.current = stream

    def synchronize(self, device=None):
        if self.dead:
            raise RuntimeError("CUDA error: unspecified launch failure\nmore")
        self.synchronised += 1

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def end_pool(self, index, pool):
        if (index, pool) != (1, self.pool):
            raise RuntimeError("not currently recording to it")
        self.pool = None

    @contextlib.contextmanager
    def graph(self, graph, pool, stream):
        self.current, before = stream, self.current
        self.pool = pool
        self.generator.state = "capturing"
        yield  # as in torch, an error leaves both where they are
        if self.breaks:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self.current, self.generator.state, self.pool = before, "kept", None

    def replay(self):
        return "replayed"


@pytest.fixture
def cuda(monkeypatch):
    recorder._stream.cache_clear()
    yield Cuda(monkeypatch)
    recorder._stream.cache_clear()


def fail():
    raise ValueError("work")


def test_one_stream_a_device_serves_all(cuda):
    seen = []
    for _ in range(2):
        made = CudaRecorder(CUDA)
        made.ahead(lambda: seen.append((cuda.current.name, cuda.mode)))
        made.ahead(lambda: seen.append((cuda.current.name, cuda.mode)), strict=True)
        assert made.record(lambda: seen.append((cuda.current.name, cuda.mode)))() == "replayed"
    assert seen == [("own 1", 0), ("own 1", "error"), ("own 1", 0)] * 2
    assert cuda.made == [1]
    assert set(cuda.inside) == {CUDA}
    assert cuda.mode == 0


@pytest.mark.parametrize("strict", [True, False])
def test_work_that_fails_is_waited_for(cuda, strict):
    with pytest.raises(ValueError, match="work"):
        CudaRecorder(CUDA).ahead(fail, strict=strict)
    assert cuda.current is cuda.outer
    assert cuda.outer.waited == ["own 1"]
    assert cuda.synchronised == 1
    assert cuda.mode == 0


def test_a_capture_that_fails_is_left(cuda):
    with pytest.raises(ValueError, match="work"):
        CudaRecorder(CUDA).record(fail)
    assert (cuda.current, cuda.generator.state, cuda.pool) == (cuda.outer, "kept", None)
    cuda.breaks = True
    with pytest.raises(RuntimeError, match="previous error during capture"):
        CudaRecorder(CUDA).record(lambda: None)
    assert (cuda.current, cuda.generator.state, cuda.pool) == (cuda.outer, "kept", None)


def test_a_device_that_is_lost_is_said(cuda):
    def lose():
        cuda.dead = True
        fail()

    with pytest.raises(DeviceLost) as found:
        CudaRecorder(CUDA).record(lose)
    assert str(found.value) == (
        "recording the training step failed (ValueError: work), and since then the GPU is of no use to this process "
        "(CUDA error: unspecified launch failure); start again with --no-compile, or compile=False, which records "
        "nothing."
    )


def test_replays_are_timed_by_the_device(cuda, monkeypatch):
    class Event:
        def __init__(self, enable_timing):
            self.at = None

        def record(self):
            self.at = len(done)

        def synchronize(self):
            cuda.synchronised += 1

        def elapsed_time(self, last):
            return 5.0 * (last.at - self.at)  # milliseconds

    done = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    assert CudaRecorder(CUDA).seconds(lambda: done.append(1)) == pytest.approx(5e-3)
    assert len(done) == recorder.TIMES + 1  # once ahead
    assert cuda.synchronised == 2
