"""What `phcgnn doctor` says where something is hidden or missing."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
import torch

from phcgnn.cli import doctor


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_gpu_that_the_environment_hides(no_gpu, monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert doctor._gpu() == {
        "used": f"no: the environment hides it: CUDA_VISIBLE_DEVICES is {hidden!r}; unset it",
    }


def test_what_torch_complains_of_is_the_reason(no_gpu, monkeypatch):
    def complain():
        warnings.warn("CUDA initialization: The NVIDIA driver on your system\nis too old", stacklevel=2)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", complain)
    assert doctor._gpu() == {"used": "no: CUDA initialization: The NVIDIA driver on your system is too old"}


def test_it_works_without_any_optional_package():
    code = (
        "import sys\n"
        "from importlib import metadata\n"
        "gone = ('rdkit', 'pandas', 'pyarrow', 'ogb', 'matplotlib', 'triton', 'tensorboard')\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in gone: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "version = metadata.version\n"
        "def absent(name):\n"
        "    if name in gone: raise metadata.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "metadata.version = absent\n"
        "from phcgnn.cli.main import app\n"
        "app(['doctor'])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.count("not installed (") == 7
    assert "pip install 'phcgnn[chem]'" in result.stdout
