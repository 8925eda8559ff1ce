"""Interleaved timing, peak memory, and a line about the machine."""

from __future__ import annotations

import datetime
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = ["Step", "interleave", "machine", "median_ratio", "peak_bytes"]

Step = Callable[[], object]


def interleave(steps: dict[str, Step], *, rounds: int, seconds: float, cuda: bool) -> dict[str, list[float]]:
    """Time every step once a round, in turn, so that noise on a shared machine falls on all of them alike.

    A timing repeats the step often enough to fill ``seconds / rounds / len(steps)``; the result is seconds a step. On a
    GPU the clock is the device's own: events before the first and behind the last step, so that neither the wait for
    the host nor that for the device is counted, while gaps that a slow host leaves between kernels are.
    """
    counts = {}
    for name, step in steps.items():
        step()
        step()
        once = max(_timed(step, 1, cuda), 1e-6)
        counts[name] = max(1, round(seconds / rounds / len(steps) / once))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(_timed(step, counts[name], cuda))
    return times


def median_ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """Return the median over rounds of the ratio of two steps timed in the same round."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def peak_bytes(step: Step, cuda: bool) -> int:
    """Return the most bytes of tensors that one step holds beyond what was held before it."""
    step()
    if cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return int(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def machine(device: str) -> dict[str, Any]:
    """Return what a reader of a figure needs to know of where it was measured."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line), cpu
        )
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else cpu,
        "cuda": device == "cuda",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }


def _timed(step: Step, count: int, cuda: bool) -> float:
    if cuda:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        first.record()
        for _ in range(count):
            step()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3 / count
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count
