from __future__ import annotations

import io
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from phcgnn.data.molecules import OgbFeaturiser, available_cores, concatenate, featurise, featuriser, pool, worker

pytest.importorskip("rdkit")

FIELDS = ("x", "node_counts", "edge_index", "edge_attr", "edge_counts")
SMILES = ["C" * (1 + i % 7) + "O" * (i % 2) for i in range(50)]


@pytest.fixture
def two_cores(monkeypatch):
    """Two workers, however many cores there are."""
    monkeypatch.setattr(pool, "available_cores", lambda: 2)


def run(script: str, tmp_path: Path, *arguments: str, **options) -> subprocess.Popen[str]:
    (tmp_path / "script.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "script.py"), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.parametrize("workers", [1, 2, None])
@pytest.mark.parametrize("chunk", [7, 50, 1000])
@pytest.mark.parametrize("name", ["ogb", "zinc"])
def test_equals_one_call_in_order(two_cores, workers, chunk, name):
    whole, _ = featuriser(name)(SMILES)
    joined = concatenate(graphs for graphs, _ in featurise(SMILES, name, workers=workers, chunk=chunk))
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(joined, field), getattr(whole, field))


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_are_numbered_within_their_chunk(two_cores, workers):
    answers = list(featurise(["C", "C(", "C", "C", "X", "C"], workers=workers, chunk=2))
    assert [len(graphs) for graphs, _ in answers] == [1, 2, 1]
    assert [[error.index for error in errors] for _, errors in answers] == [[1], [], [0]]


@pytest.mark.parametrize("workers", [1, 2])
def test_reads_no_further_than_the_work_under_way(two_cores, workers):
    taken = 0

    def endless():
        nonlocal taken
        for text in itertools.cycle(SMILES):
            taken += 1
            yield text

    answers = featurise(endless(), workers=workers, chunk=3)
    next(answers)
    assert taken <= 3 * (2 * workers + 2)
    next(answers)
    answers.close()


def test_leaving_the_loop_ends_the_workers(two_cores, monkeypatch):
    started = []
    start = subprocess.Popen

    def record(*arguments, **options):
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(pool.subprocess, "Popen", record)
    for _ in featurise(itertools.cycle(SMILES), workers=2, chunk=3):
        break
    import gc

    gc.collect()
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_a_small_input_starts_no_process(two_cores, monkeypatch):
    monkeypatch.setattr(pool, "_Pool", None)
    assert len(list(featurise(SMILES, workers=2, chunk=50))) == 1
    assert list(featurise([], workers=2)) == []


def test_no_more_workers_than_cores(monkeypatch):
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    monkeypatch.setattr(pool, "_Pool", None)
    assert len(list(featurise(SMILES, workers=64, chunk=10))) == 5
    assert available_cores() >= 1


def test_a_dead_worker_is_named_with_the_way_to_find_the_cause(two_cores, tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(
        "import os\n"
        "from phcgnn.data.molecules import OgbFeaturiser\n"
        "class Deadly(OgbFeaturiser):\n"
        "    def __call__(self, smiles):\n"
        "        os._exit(3) if 'OO' in smiles else None\n"
        "        if 'NN' in smiles: raise KeyError('NN')\n"
        "        return super().__call__(smiles)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import deadly

    with pytest.raises(RuntimeError, match=r"exit code 3\) on the 1 SMILES from 'OO' on.*workers=1"):
        list(featurise(["C", "OO", "C"], deadly.Deadly(), workers=2, chunk=1))
    with pytest.raises(RuntimeError, match=r"KeyError: 'NN'"):
        list(featurise(["C", "NN", "C"], deadly.Deadly(), workers=2, chunk=1))


def test_a_script_needs_no_guard_and_may_define_its_own_featuriser(tmp_path):
    script = (
        "import sys\n"
        "from phcgnn.data.molecules import OgbFeaturiser, featurise, pool\n"
        "pool.available_cores = lambda: 2\n"
        "class Own(OgbFeaturiser): name = 'own'\n"
        "sys.stdout.write('once ')\n"
        "for by in ('ogb', Own()):\n"
        "    sys.stdout.write(f'{sum(len(g) for g, _ in featurise([\"C\"] * 30, by, workers=2, chunk=10))} ')\n"
    )
    out, err = run(script, tmp_path).communicate(timeout=120)
    assert (out, err) == ("once 30 30 ", "")


def test_ctrl_c_ends_it_at_once_and_leaves_no_process_behind(tmp_path):
    script = (
        "import itertools, sys\n"
        "from phcgnn.data.molecules import featurise, pool\n"
        "pool.available_cores = lambda: 2\n"
        "for number, _ in enumerate(featurise(itertools.repeat('CCO'), workers=2, chunk=100)):\n"
        "    if number == 5: print('going', flush=True)\n"
    )
    process = run(script, tmp_path, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert err.count("KeyboardInterrupt") == 1
    assert err.count("Traceback") == 1
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a worker outlived the script")


def test_a_worker_serves_until_its_input_ends():
    requests = io.BytesIO(pickle.dumps(OgbFeaturiser()) + pickle.dumps(["C"]) + pickle.dumps([3]))
    answers = io.BytesIO()
    worker.serve(requests, answers)
    answers.seek(0)
    assert len(pickle.load(answers)[0]) == 1
    assert isinstance(pickle.load(answers), RuntimeError)
    assert answers.read() == b""


@pytest.mark.parametrize("light", [True, False])
def test_a_worker_for_our_own_featurisers_imports_no_torch(light):
    code = worker.BOOT + "sys.stderr.write(str('torch' in sys.modules))"
    command = [sys.executable, "-c", code, worker.__file__, "light" if light else "full"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    body = pickle.dumps(OgbFeaturiser()) + pickle.dumps(["C", "CC"])
    done = subprocess.run(command, input=body, env=environment, capture_output=True, check=True)
    assert len(pickle.loads(done.stdout)[0]) == 2
    assert done.stderr == b"False" or not light


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`workers` must be at least 1, got 0"):
        featurise([], workers=0)
    with pytest.raises(ValueError, match=r"`chunk` must be at least 1, got 0"):
        featurise([], chunk=0)
