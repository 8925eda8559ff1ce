"""The network that the benchmark compares with computes what ours does, and the benchmarks' lines make tables."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from phcgnn import PHCGNN
from phcgnn.experiments.bench import Work, synthetic_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.mark.parametrize("preset", ["zinc-100k-phc5", "molhiv-phc4", "zinc-100k-phc1"])
def test_the_plain_network_is_ours(preset, script):
    plain_module = script("_plain")
    work = Work.from_preset(preset, dropout=0.0, downstream_dropout=0.0, layers=2)
    store = synthetic_store(work.data, 12)
    config = work.config(store.metadata)
    model = PHCGNN.from_config(config).double()
    plain = plain_module.PlainNetwork(config).double()
    plain_module.copy_weights(model, plain)
    batch = store.batch(range(12))
    for training in (True, False):
        y, expected = model.train(training)(batch), plain.train(training)(batch)
        torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-11)
    folded = plain_module.folded(plain)
    torch.testing.assert_close(folded(batch), expected, rtol=1e-9, atol=1e-11)
    assert not any(isinstance(module, plain_module.KroneckerLinear) for module in folded.modules())
    assert sum(p.numel() for p in plain.parameters()) == model.num_parameters()
    y.square().sum().backward()
    expected.square().sum().backward()
    found = model.convs[0].transform.linear1
    torch.testing.assert_close(found.weight.grad, plain.convs[0].linear1.weight.grad, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.rule.constants.grad, plain.convs[0].linear1.constants.grad, rtol=1e-8, atol=1e-10)


MACHINE = {"device": "Some CPU", "threads": 2, "torch": "2.13.0", "python": "3.11.7", "date": "2026-11-19"}
RATES = {"ours_training_graphs_per_second": 2000.4, "plain_training_graphs_per_second": 900.0}
RATES |= {"ours_prediction_graphs_per_second": 9000.0, "plain_prediction_graphs_per_second": 2500.0}
PRESET = {"preset": "zinc-100k-phc5", "batch_size": 256, "data": "zinc"}
CPU = [
    {"benchmark": "step-machine", **MACHINE},
    {
        "benchmark": "step-capability",
        "onednn": True,
        "product_gflops": 350.4,
        "torch_linear_gflops": 190.0,
        "copy_in_cache_gb_s": 120.0,
        "copy_from_memory_gb_s": 30.0,
    },
    {"benchmark": "step", **PRESET, **RATES, "training_times_plain": 2.2227, "prediction_times_plain": 3.6},
    {
        "benchmark": "step-profile",
        **PRESET,
        "step_ms": 128.0,
        "gflop": 13.19,
        "mbyte": 614.9,
        "products_share": 0.5,
        "products_gflops": 206.0,
    },
    {"benchmark": "step-operation", **PRESET, "operation": "aten::mm", "calls": 46.0, "ms": 1.234, "share": 0.0096},
]
GROWTH = [
    {"benchmark": "growth-machine", **MACHINE},
    {"benchmark": "growth", "against": "n", "value": 4, "step_ms": 50.04, "graphs_per_second": 2558.0, "peak_mb": 60.1},
    {"benchmark": "growth", "against": "graphs", "value": 10000, "epoch_s": 2, "graphs_per_second": 5e3, "store_mb": 2},
]


def test_tables_of_the_cpu(script):
    text = script("speed_tables").tables(CPU)
    assert text.startswith("Some CPU, 2 threads, torch 2.13.0")
    assert "| zinc-100k-phc5 | zinc | 256 | training | 2,000 | 900 | 2.22 |" in text
    assert "| zinc-100k-phc5 | zinc | 256 | prediction | 9,000 | 2,500 | 3.60 |" in text
    assert "128.0 ms for 13.2 GFLOP, of which products take 50% at 206 GFLOP/s" in text
    assert text.endswith("| `aten::mm` | 46 | 1.23 | 1.0% |")


def test_a_third_contender_has_columns_of_its_own(script):
    kept = {"plain_folded_prediction_graphs_per_second": 4000.0, "prediction_times_plain_folded": 2.254}
    text = script("speed_tables").tables([{**line, **kept} if line["benchmark"] == "step" else line for line in CPU])
    assert "| prediction | 9,000 | 2,500 | 3.60 | 4,000 | 2.25 |" in text


def test_a_gpu_of_any_name_is_one(script):
    kind = script("speed_tables").kind
    assert kind([{"benchmark": "step-machine", **MACHINE, "device": "AMD Instinct MI300X", "cuda": True}]) == "cuda"
    assert kind([{"benchmark": "step-machine", **MACHINE, "device": "NVIDIA Grace CPU", "cuda": False}]) == "cpu"
    assert kind([{"benchmark": "step-machine", **MACHINE, "device": "NVIDIA H200"}]) == "cuda"


GPU = [
    {"benchmark": "step-machine", **MACHINE, "device": "NVIDIA H200"},
    {
        "benchmark": "step-kernel",
        "operation": "softmax",
        "like": "molhiv",
        **{"nodes": 3072, "edges": 6656, "width": 200, "difference": 1e-6},
        **{"forward_kernel_us": 8.5, "forward_torch_us": 40.0, "both_kernel_us": 30.0, "both_torch_us": 150.0},
    },
    {
        "benchmark": "step",
        **PRESET,
        **{"dense": False, "step_ms": 2.0, "floor_ms": 0.6, "graphs_per_second": 128000, "plain_ms": 50.0},
        **{"fast_peak_mb": 900.0, "fast_kernels": 800, "fast_path": "used", "path": "recorded, compiled, with kernels"},
        **{"kernels_ms": 1.9, "without_kernels_ms": 2.1},
    },
]


def test_tables_of_a_gpu_say_which_was_kept(script):
    text = script("speed_tables").tables(GPU)
    assert "| 50.00 | recorded, compiled, with kernels | 1.900 | 2.100 |" in text
    assert "| softmax | molhiv | 3072 | 6656 | 200 | 8.5 | 40.0 | 30.0 | 150.0 |" in text
    old = {key: value for key, value in GPU[2].items() if key not in ("path", "kernels_ms", "without_kernels_ms")}
    assert "| 50.00 |  |  |  |" in script("speed_tables").tables([GPU[0], old])


def test_tables_of_growth_show_the_figures_that_are_there(script, tmp_path):
    (tmp_path / "growth-n.svg").write_text("<svg/>")
    text = script("speed_tables").tables(GROWTH, tmp_path)
    assert text.count("![") == 1
    assert "![Cost against n](figures/growth-n.svg)\n\n| n | ms a step | graphs/s | peak MB |" in text
    assert text.endswith("| 10,000 | 2.0 | 5,000.0 | 2.0 |")


def test_the_page_of_the_docs_has_a_place_for_all(script, tmp_path, monkeypatch):
    tables = script("speed_tables")
    page = tmp_path / "speed.md"
    page.write_text((ROOT / "docs" / "speed.md").read_text(encoding="utf-8"), encoding="utf-8")
    gpu = [{"benchmark": "step-machine", **MACHINE, "device": "NVIDIA H200"}]
    for name, lines in (("cpu", CPU), ("cuda", gpu), ("growth", GROWTH)):
        (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "lines.jsonl"), "--into", str(page)])
        tables.main()
        assert f"<!-- tables: {name} -->\n\n{lines[0]['device']}" in page.read_text(encoding="utf-8")


def test_work_on_a_gpu_and_its_count(script):
    step = script("step")
    works = list(step.gpu_works())
    assert [(w.model["n"], w.model.get("dense", False)) for w, _ in works[:2]] == [(16, False), (16, True)]
    assert works[-1][0].training.batch_size == 32
    one, two = (step.count(works[0][0].config(synthetic_store("zinc", 4).metadata), v, 0, 1) for v in (1e3, 2e3))
    # 33 products of 304 x 304 and one of 304 x 19 a node, forward and twice backward
    assert two[0] - one[0] == 6e3 * (33 * 304 * 304 + 304 * 19)
    assert two[1] > one[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["step.py", "--graphs", "64", "--rounds", "1"], ["growth.py", "--quick", "--rounds", "1"]],
    ids=["step", "growth"],
)
def test_programs_run(arguments, tmp_path):
    out = tmp_path / "lines.jsonl"
    command = [sys.executable, *arguments, "--threads", "1", "--seconds", "0.1", "-o", str(out)]
    subprocess.run(command, cwd=ROOT / "benchmarks", check=True, capture_output=True, timeout=300)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) > 10
    assert all(line["benchmark"].startswith(arguments[0].removesuffix(".py")) for line in lines)
