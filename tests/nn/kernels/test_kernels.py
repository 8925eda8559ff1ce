"""The kernels without a GPU: their results under Triton's interpreter, and that they compile for Hopper."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from phcgnn.nn import kernels
from phcgnn.nn.kernels import language, softmax_edges, softmax_forward, softmax_sources, sums
from phcgnn.nn.kernels.tiles import choose

HERE = Path(__file__).parent

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs Triton: pip install 'phcgnn[dev]' on Linux, or triton"
)


@needs_triton
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_results_under_the_interpreter(which):
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        which,
        str(HERE / "under_interpreter.py"),
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-2000:]
    assert re.search(r"\d\d passed", found.stdout)


KERNELS = {
    "sum": (sums.sum_rows_kernel, 512, {}),
    "softmax": (softmax_forward.softmax_kernel, 512, {"LISTED": True, "FEATURES": 3, "REAL": False}),
    "softmax of messages": (softmax_forward.softmax_kernel, 512, {"LISTED": False, "FEATURES": 0, "REAL": False}),
    "edges": (
        softmax_edges.edges_kernel,
        1024,
        {"LISTED": True, "FEATURES": 3, "REAL": False, "CATEGORIES": 13, "WRITE": False},
    ),
    "edges, real": (
        softmax_edges.edges_kernel,
        1024,
        {"LISTED": True, "FEATURES": 8, "REAL": True, "CATEGORIES": 8, "WRITE": False},
    ),
    "messages": (
        softmax_edges.edges_kernel,
        1024,
        {"LISTED": False, "FEATURES": 0, "REAL": False, "CATEGORIES": 0, "WRITE": True},
    ),
    "sources": (softmax_sources.sources_kernel, 512, {"FEATURES": 3, "REAL": False}),
}
INTEGERS = ("index", "ptr", "source", "target", "leaving", "leaving_ptr")
ALWAYS_WIDE = ("highest", "weight", "to_table", "to_beta")


@needs_triton
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "kind, width",
    [
        ("fp32", 304),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [("fp32", 225), ("bf16", 200), ("fp64", 304)]),
    ],
)
def test_compiles_for_a_gpu_that_is_not_here(kind, width, name, tmp_path, monkeypatch):
    """Without atomic additions, and within the registers."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the interpreter compiles nothing")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel, cells, options = KERNELS[name]
    wide = "fp64" if kind == "fp64" else "fp32"
    tile = choose(width, cells, 2.1, most=32 if kernel is softmax_edges.edges_kernel else 128).options()
    how = {name: tile.pop(name) for name in ("num_warps", "enable_fp_fusion")}
    constants = {**options, **tile, "WIDTH": width, "WIDE": getattr(language.tl, f"float{wide[2:]}")}
    signature, aligned = {}, {}
    for place, argument in enumerate(kernel.arg_names):
        of_codes = "*i64" if not options.get("REAL") else f"*{kind}"
        pointer = "*i64" if argument in INTEGERS else f"*{wide if argument in ALWAYS_WIDE else kind}"
        pointer = of_codes if argument == "codes" else pointer
        signature[argument] = "i32" if argument in ("rows", "edges") else pointer
        if argument in constants:
            signature[argument] = "constexpr"
        elif signature[argument] != "i32":
            aligned[place,] = [["tt.divisibility", 16]]
    places = {(kernel.arg_names.index(argument),): value for argument, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=how)
    # of the largest logit, logit - logit must be 0: contracted to fma(message, beta, -logit) it would be its rounding
    # (in float64 the exponential itself is made of them)
    assert not re.search(r"\bfma\.rn\.f32 ", compiled.asm["ptx"]) or "softmax" not in name
    assert not re.search(r"\b(atom|red)\.", compiled.asm["ptx"])
    assert compiled.metadata.shared <= 4096
    if kind != "bf16" and width % 4 == 0:
        assert re.search(r"ld\.global\.v[24]\.", compiled.asm["ptx"]), "rows are not read 16 bytes at a time"
    dump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if dump.exists():
        (tmp_path / "kernel.cubin").write_bytes(compiled.asm["cubin"])
        command = [str(dump), "--dump-resource-usage", str(tmp_path / "kernel.cubin")]
        used = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert int(re.search(r"STACK:(\d+)", used)[1]) <= 16, used  # nothing to speak of is spilled
        assert "LOCAL:0 " in used, used


def test_torch_s_operations_without_a_gpu_or_triton():
    if os.environ.get("TRITON_INTERPRET") != "1":
        assert not kernels.takes(torch.ones(2, 2))
        assert kernels.why_not(torch.device("cpu")) == "a CPU runs no kernels"
    code = (
        "import sys\nsys.modules['triton'] = None\n"
        "import torch\nfrom phcgnn.nn.kernels import switch, softmax, sums, language\n"
        "import importlib.util\nimportlib.util.find_spec = lambda name: None\n"
        "assert not vars(language.tl)\n"
        "assert switch.why_not(torch.device('cuda')) == 'triton is not installed'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_of_triton_is_imported_before_it_is_used():
    code = "import sys, phcgnn.models, phcgnn.nn.kernels\nassert 'phcgnn.nn.kernels.language' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wishes_are_nested():
    with kernels.use(False) as outer:
        assert not kernels.takes(torch.ones(2, device="meta"))
        with kernels.use(True) as inner:
            assert inner.wanted
        assert not kernels.takes(torch.ones(2))
        assert kernels.refused()
    assert (outer.taken, inner.taken) == (0, 0)
    assert not kernels.wanted()  # by themselves, but nobody has refused them
    assert not kernels.refused()
