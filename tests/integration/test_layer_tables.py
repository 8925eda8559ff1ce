"""What makes the tables of docs/layers.md of the benchmark's lines."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINE = {"benchmark": "layer-machine", "threads": 2, "torch": "2.11.0", "python": "3.12.3", "date": "2026-11-19"}


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("layer_tables", ROOT / "benchmarks" / "layer_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(**changes):
    times = {"linear_ms": 0.1367, "phm_ms": 0.1561, "textbook_ms": 0.35, "ratio_to_linear": 1.1419}
    case = {"benchmark": "layer", "captured": True, "precision": "tf32", "pass": "forward+backward"}
    return {**case, "rows": 6000, "width": 304, "n": 8, **times, **changes}


GPU = [
    {**MACHINE, "device": "NVIDIA H200"},
    line(),
    line(captured=False, phm_ms=0.53),
    line(captured=False, phm_ms=0.03, **{"pass": "forward, eval"}),
    line(width=64, rows=256),
    {"benchmark": "layer-break-even", "precision": "tf32", "width": 2048, "n": 8, "rows": 16384, "tried": 65536},
    {"benchmark": "layer-break-even", "precision": "tf32", "width": 64, "n": 8, "rows": None, "tried": 1048576},
]
GPU_TABLES = """NVIDIA H200, torch 2.11.0, Python 3.12.3, 2026-11-19; 6,000 rows, 304 -> 304.

| training step | n | `nn.Linear` captured ms | `PHMLinear` | textbook | ratio | eager: `nn.Linear` ms | `PHMLinear` | textbook |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| tf32 | 8 | 0.137 | 0.156 | 0.350 | 1.14 | 0.14 | 0.53 | 0.35 |

| eval, eager | n | `nn.Linear` ms | `PHMLinear` ms | ratio |
| --- | --- | --- | --- | --- |
| tf32 | 8 | 0.137 | 0.030 | 1.14 |

From how many rows on a training step costs less than 10% extra:

| tf32, width | n = 8 |
| --- | --- |
| 64 | more than 1,048,576 |
| 2,048 | 16,384 |"""  # noqa: E501


def test_tables_of_a_gpu(script):
    assert script.tables(GPU) == GPU_TABLES


def test_tables_of_the_cpu(script):
    peaks = {"linear_peak_mb": 14.27, "phm_peak_mb": 14.62, "textbook_peak_mb": 15.06}
    text = script.tables([{**MACHINE, "device": "Some CPU"}, line(captured=False, precision="float32", **peaks)])
    assert text.startswith("Some CPU, 2 threads, torch 2.11.0")
    assert text.endswith("| forward+backward | 8 | 0.14 | 0.16 | 0.35 | 1.142 | 14.3, 14.6, 15.1 |")
    compared = line(captured=False, precision="float32", ratio_to_affine=1.0312, **peaks)
    text = script.tables([{**MACHINE, "device": "Some CPU"}, compared])
    assert "| ratio to `nn.Linear` | ratio to it with the same product | peak MB" in text
    assert text.endswith("| 1.142 | 1.031 | 14.3, 14.6, 15.1 |")


def test_the_page_of_the_docs_has_a_place_for_both(script, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "layers.md").read_text(encoding="utf-8")
    for name in ("cpu", "cuda"):
        assert "here they are" in script.put(page, name, "here they are")
    with pytest.raises(ValueError, match="no place for the tables of tpu"):
        script.put(page, "tpu", "")
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, GPU)), encoding="utf-8")
    arguments = ["layer_tables.py", str(tmp_path / "lines.jsonl"), "--into", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", arguments)
    script.main()
    written = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert f"<!-- tables: cuda -->\n\n{GPU_TABLES}\n\n<!-- end of tables -->" in written
    assert written.count("## What it costs") == 1
