"""Featurising over all cores: chunks out, graphs back, in order, with a bounded number of chunks under way."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.molecules import worker
from phcgnn.data.molecules.featurisers import Featuriser, SmilesError, featuriser
from phcgnn.errors import require_positive

__all__ = ["available_cores", "featurise"]

Answer = tuple[FlatGraphs, list[SmilesError]]


def available_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def featurise(
    smiles: Iterable[str], by: str | Featuriser = "ogb", *, workers: int | None = None, chunk: int = 512
) -> Iterator[Answer]:
    """Turn SMILES into graphs, a chunk at a time, over several processes.

    Each worker is a fresh interpreter that imports the featuriser and nothing of the calling script, so a script needs
    no ``if __name__ == "__main__"``, and neither a notebook's nor a GPU's state is copied. ``smiles`` is read only as
    far as there is work under way: two chunks a worker. Leave the loop, or interrupt it, and the workers end.

    Args:
        smiles: Any iterable, of any length.
        by: A featuriser or its name.
        workers: The number of processes; at most the number of cores is used. 1 works in this process, and so does
            any input of a single chunk, and a featuriser that is defined in the script itself. (default: all cores)
        chunk: The number of SMILES a chunk.

    Yields:
        For each chunk, in order, what the featuriser returns: graphs, and errors numbered *within the chunk*.

    >>> [(len(graphs), errors) for graphs, errors in featurise(["C", "CC", "CCC"], chunk=2)]
    [(2, []), (1, [])]
    """
    by = featuriser(by)
    cores = available_cores()
    workers = cores if workers is None else workers
    require_positive("featurise", chunk=chunk, workers=workers)
    count = min(workers, cores)
    return _featurise(_chunks(smiles, chunk), by, count)


def _featurise(chunks: Iterator[list[str]], by: Featuriser, count: int) -> Iterator[Answer]:
    first = list(itertools.islice(chunks, 2))
    chunks = itertools.chain(first, chunks)
    if count == 1 or len(first) < 2 or type(by).__module__ == "__main__":
        yield from map(by, chunks)
        return
    with _Pool(by, count) as pool:
        pending: deque[Future[Answer]] = deque()
        for part in chunks:
            pending.append(pool.submit(part))
            if len(pending) >= 2 * count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _chunks(smiles: Iterable[str], size: int) -> Iterator[list[str]]:
    source = iter(smiles)
    while part := list(itertools.islice(source, size)):
        yield part


class WorkerEnded(ChildProcessError, RuntimeError):
    """A worker process is gone: killed, or out of memory."""


class _Pool:
    """Processes, each fed by a thread of its own that waits for the answer."""

    def __init__(self, by: Featuriser, count: int) -> None:
        self._count = count
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="featurise")
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        head = pickle.dumps(by)
        light = "light" if type(by).__module__.startswith("phcgnn.data.molecules.") else "full"
        command = [sys.executable, "-c", worker.BOOT, worker.__file__, light]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            for _ in range(count):
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
                self._processes.append(process)
                assert process.stdin is not None
                process.stdin.write(head)
                self._idle.put(process)
        except BaseException:
            self.__exit__()
            raise

    def submit(self, smiles: list[str]) -> Future[Answer]:
        return self._threads.submit(self._ask, smiles)

    def _ask(self, smiles: list[str]) -> Answer:
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(smiles, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            answer: Any = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise WorkerEnded(
                f"featurise: a worker process ended (exit code {process.wait()}) on the {len(smiles)} SMILES from "
                f"{smiles[0][:60]!r} on. What it said is above; `workers=1` runs them in this process."
            ) from error
        finally:
            self._idle.put(process)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.communicate()
