import importlib.util
from pathlib import Path

import pytest

from phcgnn.data.benchmarks import DATASETS
from phcgnn.errors import DataError
from phcgnn.experiments.stores import data_at_hand, packed_store, provide_store

from .conftest import SIZES, make_benchmark


def test_a_packed_store_under_root_is_taken_as_it_lies(tiny_benchmarks, tmp_path):
    path, store = provide_store("zinc", str(tiny_benchmarks), tmp_path, any_size=True)
    assert path == tiny_benchmarks / "zinc.phg"
    assert {name: len(split) for name, split in store.splits.items()} == SIZES
    assert not packed_store("zinc", tmp_path).exists()


def test_another_size_than_the_published_one_needs_a_word(tiny_benchmarks, tmp_path):
    with pytest.raises(DataError, match=r"not the published data set \(train 12 of 10,000, val 8 of 1,000, .*any-size"):
        provide_store("zinc", str(tiny_benchmarks), tmp_path)


def test_the_published_size_needs_none(tmp_path, monkeypatch):
    make_benchmark("zinc").save(tmp_path / "zinc.phg")
    monkeypatch.setattr(DATASETS["zinc"], "sizes", SIZES)
    assert provide_store("zinc", str(tmp_path), tmp_path / "out")[0] == tmp_path / "zinc.phg"


def test_another_data_set_under_the_name_is_refused(tmp_path):
    make_benchmark("molhiv").save(tmp_path / "molpcba.phg")
    with pytest.raises(DataError, match=r"molpcba\.phg holds 'molhiv', not 'molpcba'; replace or rename it"):
        provide_store("molpcba", str(tmp_path), tmp_path / "out", any_size=True)


def test_official_files_are_packed_once(tmp_path):
    path = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "conftest.py"
    spec = importlib.util.spec_from_file_location("benchmark_files", path)
    files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(files)
    root, out = tmp_path / "root", tmp_path / "out"
    assert not data_at_hand("zinc", str(root), out)
    files.write_zinc(root, SIZES)
    assert data_at_hand("zinc", str(root), out)
    packed, store = provide_store("zinc", str(root), out, any_size=True)
    assert packed == packed_store("zinc", out)
    written = packed.stat().st_mtime_ns
    again, same = provide_store("zinc", "nowhere", out, any_size=True)
    assert (again, len(same), packed.stat().st_mtime_ns) == (packed, len(store), written)
