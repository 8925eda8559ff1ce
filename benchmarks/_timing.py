"""What the benchmarks share; what ``phcgnn bench`` uses too lives in the package."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from phcgnn.experiments.timing import Step, interleave, machine, median_ratio, peak_bytes

__all__ = ["Step", "interleave", "machine", "median_ratio", "peak_bytes", "print_lines", "processor_time", "take_turns"]


def print_lines(lines: Iterable[dict[str, Any]], output: Path | None) -> None:
    """Write a JSON line for each, as it comes, into a file or else to stdout."""
    with contextlib.nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8") as out:
        for line in lines:
            print(json.dumps(line), file=out, flush=True)


def processor_time() -> float:
    """Return the seconds that this process and its ended children have computed."""
    children = os.times()  # in hundredths; those of this process are finer elsewhere
    return time.process_time() + children.children_user + children.children_system


def take_turns(steps: Mapping[str, Step], rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Run every step once a round, in turn; return the seconds of each by the clock, and those of the processor."""
    wall: dict[str, list[float]] = {name: [] for name in steps}
    own: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            began, began_own = time.perf_counter(), processor_time()
            step()
            wall[name].append(time.perf_counter() - began)
            own[name].append(processor_time() - began_own)
    return wall, own
