"""The tables that loading.py, featurise.py and predict.py of benchmarks/ put into the pages on what they measure."""

from __future__ import annotations

import importlib
import json
import sys
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


def test_predict(script, tmp_path, monkeypatch, capsys):
    pytest.importorskip("rdkit")
    machine = {"device": "Some CPU", "torch": "2.13.0", "python": "3.11.7", "date": "2026-11-19", "rdkit": "2026.09.1"}
    lines = [
        {"benchmark": "predict-machine", **machine, "cores": 2, "table": "m.csv", "molecules": 41127, "batch_size": 32},
        {
            "benchmark": "predict",
            "contender": "predict",
            "per_second": 3000,
            "per_cpu_second": 1600,
            "cores_ideal": 3300,
        },
        {"benchmark": "predict", "contender": "read", "per_second": 90000, "per_cpu_second": 100000, "share": 0.0162},
    ]
    page, file = tmp_path / "page.md", tmp_path / "lines.jsonl"
    page.write_text("Before.\n<!-- tables: predict -->\n<!-- end of tables -->\n")
    file.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(sys, "argv", ["predict.py", "--lines", str(file), "--into", str(page)])
    script("predict").main()
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lines
    text = page.read_text()
    assert "Some CPU, 2 cores, torch 2.13.0, RDKit 2026.09.1, Python 3.11.7, 2026-11-19; the 41,127 molecules" in text
    assert "| predict | 3,000 | 1,600 |  |\n| read | 90,000 | 100,000 | 1.6% |" in text
    assert "the four stages would do 3,300 a second." in text


def test_rounds_are_taken_in_turn(script):
    seen = []
    wall, own = script("_timing").take_turns({name: lambda name=name: seen.append(name) for name in "ab"}, 3)
    assert seen == ["a", "b"] * 3
    assert [len(found[name]) for found in (wall, own) for name in "ab"] == [3] * 4


@pytest.mark.parametrize(
    "page, name",
    [("data", "loading-cpu"), ("data", "loading-cuda"), ("molecules", "featurise"), ("prediction", "predict")],
)
def test_the_pages_have_a_place_for_them(script, tmp_path, page, name):
    tables = script("layer_tables")
    tables.require_place(ROOT / "docs" / f"{page}.md", name)
    empty = tmp_path / "empty.md"
    empty.write_text("# Nothing\n")
    for missing in (empty, tmp_path / "none.md"):
        with pytest.raises(SystemExit, match=missing.name):
            tables.require_place(missing, name)
