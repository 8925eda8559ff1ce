"""Memory that a training step frees is kept for the next one."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform

__all__ = ["keep_freed_memory"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Ask glibc to keep what this process frees; return whether it will.

    By itself it gives large tensors back to the system at the end of each step and asks for them at the next, some
    thousand pages that the system has to clear each time. The process then stays as large as its largest step was.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        kept = mallopt(MMAP_THRESHOLD, 2**30) or mallopt(MMAP_THRESHOLD, 2**25)  # the most that older ones take
        return bool(mallopt(TRIM_THRESHOLD, 2**31 - 1)) and bool(kept)
    return False
