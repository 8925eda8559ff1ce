import platform
import subprocess
import sys

import pytest

from phcgnn.training import memory
from phcgnn.training.memory import keep_freed_memory

FAULTS = """
import resource, torch
from phcgnn.training.memory import keep_freed_memory
{}
def step():
    tensors = [torch.ones(2**20) for _ in range(20)]
for _ in range(10):  # until the heap has the size that it keeps
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""


def faults(line):
    """Return the pages asked for in a step, in a process of its own."""
    command = [sys.executable, "-c", FAULTS.format(line)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has this switch")
def test_freed_memory_is_not_asked_for_again():
    # glibc begins so, but moves its threshold by what it sees, and does not always end at the same
    begin = f"import ctypes; assert ctypes.CDLL(None).mallopt({memory.MMAP_THRESHOLD}, 2**17)"
    assert faults(begin) > 10_000  # of 20,480 that a step touches
    assert faults(f"{begin}; assert keep_freed_memory()") < 100


def test_another_library_is_left_alone(monkeypatch):
    keep_freed_memory.cache_clear()
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    try:
        assert keep_freed_memory() is False
    finally:
        keep_freed_memory.cache_clear()
