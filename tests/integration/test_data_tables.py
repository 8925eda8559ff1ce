"""The tables that benchmarks/loading.py and benchmarks/featurise.py put into the pages on data and molecules."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


def test_loading(script):
    times = {"ms_a_batch": 0.5126, "batches_a_second": 1950.8}
    line = {"data": "zinc", "whole_megabytes": 3.2, "batch_size": 256, "case": "store", **times}
    assert script("loading").table([line | {"times_the_best_of_pyg": 21.04}, line]).splitlines()[2:] == [
        "| zinc | 3.2 | 256 | store | 0.513 | 1,951 | 21.0 |",
        "| zinc | 3.2 | 256 | store | 0.513 | 1,951 | not compared |",
    ]


def test_featurise(script):
    pytest.importorskip("rdkit")
    pool = {"times_one_core": 1.8, "processor_time_of_one_core": 1.043}
    lines = [
        {"contender": "parse", "per_second": 9000, "per_cpu_second": 10000},
        {"contender": "ogb, 2 workers", "per_second": 8000, **pool},
    ]
    assert script("featurise").table(lines).splitlines()[2:] == [
        "| parse | 9,000 | 10,000 |  |  |",
        "| ogb, 2 workers | 8,000 |  | 1.80 | 1.04 |",
    ]


@pytest.mark.parametrize("page, name", [("data", "loading-cpu"), ("data", "loading-cuda"), ("molecules", "featurise")])
def test_the_pages_have_a_place_for_them(script, tmp_path, page, name):
    tables = script("layer_tables")
    tables.require_place(ROOT / "docs" / f"{page}.md", name)
    empty = tmp_path / "empty.md"
    empty.write_text("# Nothing\n")
    for missing in (empty, tmp_path / "none.md"):
        with pytest.raises(SystemExit, match=missing.name):
            tables.require_place(missing, name)
