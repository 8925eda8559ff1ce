"""Every benchmark, tiny, in its official layout."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_benchmarks(tmp_path_factory) -> Path:
    """A folder that holds the six data sets of the paper with a few graphs each."""
    path = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "conftest.py"
    spec = importlib.util.spec_from_file_location("benchmark_files", path)
    files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(files)
    root = tmp_path_factory.mktemp("benchmarks")
    sizes = {"train": 12, "val": 8, "test": 8}
    files.write_zinc(root, sizes)
    for name in ("ogbg-molhiv", "ogbg-molpcba", "ogbg-ppa"):
        files.write_ogb(root, name, sizes)
    for name in ("MNIST", "CIFAR10"):
        files.write_superpixels(root, name, sizes)
    return root
