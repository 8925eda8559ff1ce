"""What benchmarks/model.py measures, and the tables that it makes of it for docs/model.md."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES = [
    {
        "benchmark": "model-machine",
        "device": "Some CPU",
        "threads": 2,
        "torch": "2.13.0",
        "python": "3.11.7",
        "date": "2026-11-19",
    },
    {
        "benchmark": "model-fold",
        "network": "zinc-100k",
        "graphs": 128,
        "phm_ms": 12.345,
        "folded_ms": 11.0,
        "compact_ms": 10.0,
        "phm_uncached_ms": 14.0,
        "folded_to_phm": 0.891,
        "compact_to_phm": 0.81,
        "phm_to_uncached": 0.882,
        "largest_relative_difference": 2e-7,
    },
    {
        "benchmark": "model-neighbours",
        "nodes": 7776,
        "edges": 72512,
        "width": 900,
        "edges_x_width_mb": 249.0,
        "ours_ms": 40.0,
        "pyg_ms": 400.04,
        "ours_peak_mb": 53.4,
        "pyg_peak_mb": 1000.0,
        "ours_saved_mb": 1.0,
        "pyg_saved_mb": 2.0,
        "ours_to_pyg": 0.1,
        "largest_difference": 1e-5,
    },
]
TABLES = """Some CPU, 2 threads, torch 2.13.0, Python 3.11.7, 2026-11-19.

| network | graphs | PHM ms | folded ms | compact ms | uncached ms | folded to phm | compact to phm | phm to uncached |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| zinc-100k | 128 | 12.35 | 11.00 | 10.00 | 14.00 | 0.89 | 0.81 | 0.88 |

Predictions differ by at most 2e-07 of the largest one.

7,776 nodes, 72,512 edges, width 900: a tensor of size edges x width is 249.0 MB.

|  | here | as usually written |
| --- | --- | --- |
| forward + backward, ms | 40.0 | 400.0 |
| most memory at once, MB | 53.4 | 1,000.0 |
| kept from forward to backward, MB | 1.0 | 2.0 |"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("model_benchmark", ROOT / "benchmarks" / "model.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # PyTorch Geometric looks there for the class of a layer
    spec.loader.exec_module(module)
    return module


def run(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["model.py", *map(str, arguments)])
    script.main()


def test_lines_measured_before_go_into_the_page(script, tmp_path, monkeypatch):
    page, lines = tmp_path / "page.md", tmp_path / "lines.jsonl"
    original = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    page.write_text(original, encoding="utf-8")
    lines.write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    run(script, monkeypatch, "--lines", lines, "--into", page, "--threads", 1)
    written = page.read_text(encoding="utf-8")
    assert f"<!-- tables: cpu -->\n\n{TABLES}\n\n<!-- end of tables -->" in written
    assert written.partition("<!-- tables: cpu -->")[0] == original.partition("<!-- tables: cpu -->")[0]
    assert written.partition("### A GPU")[2] == original.partition("### A GPU")[2]
    page.write_text("# A page without a place", encoding="utf-8")
    with pytest.raises(SystemExit, match="no place for the tables of cpu"):
        run(script, monkeypatch, "--lines", lines, "--into", page, "--threads", 1)
    with pytest.raises(SystemExit):
        run(script, monkeypatch, "--only", "fold", "--into", page)


def test_a_small_run(script, tmp_path, monkeypatch, capsys):
    tiny = {"node_features": (28,), "edge_features": (4,), "n": 2, "width": 8, "layers": 1, "downstream": ()}
    monkeypatch.setattr(script, "NETWORKS", {"tiny": tiny})
    page = tmp_path / "page.md"
    page.write_text("<!-- tables: cpu -->\n<!-- end of tables -->\n", encoding="utf-8")
    small = ("--batch", 1, "--graphs", 2, "--width", 120, "--rounds", 2, "--seconds", 0.02, "--threads", 1)
    run(script, monkeypatch, *small, "--into", page)
    machine, folded, neighbours = map(json.loads, capsys.readouterr().out.splitlines())
    assert machine["benchmark"] == "model-machine"
    assert folded["largest_relative_difference"] < 1e-5
    assert neighbours["largest_difference"] < 1e-4
    assert neighbours["ours_peak_mb"] < neighbours["edges_x_width_mb"] < neighbours["pyg_peak_mb"]
    assert neighbours["ours_saved_mb"] < neighbours["edges_x_width_mb"]
    assert "| tiny | 1 |" in page.read_text(encoding="utf-8")
