import json
import os
from importlib import metadata

import pytest
import torch
from typer.testing import CliRunner

from phcgnn import __version__
from phcgnn.cli import doctor
from phcgnn.cli.main import app
from phcgnn.nn.kernels import switch


def facts():
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_says_what_there_is():
    found = facts()
    assert found["versions"]["phcgnn"] == __version__
    for name in doctor.CORE:
        assert found["versions"][name] == metadata.version(name)
    assert set(found["optional"]) == set(doctor.OPTIONAL)
    assert 1 <= found["machine"]["cores"] <= (os.cpu_count() or 1)
    assert found["machine"]["torch threads"] == torch.get_num_threads()


def test_as_text_it_says_the_same():
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    for section, entries in facts().items():
        assert f"{section}:" in result.stdout
        for name, value in entries.items():
            assert f"  {name:<16} {value}" in result.stdout


def test_what_is_missing_comes_with_a_remedy(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    found = facts()
    for name, remedy in doctor.OPTIONAL.items():
        assert found["optional"][name] == f"not installed ({remedy})"


@pytest.mark.parametrize(
    ("there", "built", "said"),
    [
        (True, "13.0", "yes, by --device auto"),
        (False, None, "built without CUDA; install a CUDA build of torch"),
        (False, "13.0", "built for CUDA 13.0, but finds no GPU or driver; try nvidia-smi"),
    ],
)
def test_whether_the_gpu_is_used_and_if_not_why(monkeypatch, there, built, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "NVIDIA H200")
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(switch, "_known", {"cuda": "triton is not installed"})
    found = doctor._gpu()
    assert found.get("own kernels") == ("no: triton is not installed" if there else None)
    assert said in found["used"]
    assert found.get("cuda:0") == ("NVIDIA H200" if there else None)
