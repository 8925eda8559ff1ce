from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from phcgnn.cli.main import app
from phcgnn.data import GraphStore, StoreMetadata

from ..data.benchmarks.conftest import write_zinc

run = CliRunner().invoke


@pytest.fixture
def stored(tmp_path):
    metadata = StoreMetadata(
        name="pairs",
        task="regression",
        targets=tuple(f"t{i}" for i in range(20)),
        metric="mae",
        node_features=(5,),
        edge_features=None,
    )
    graphs = [Data(x=torch.tensor([[i], [4]]), edge_index=torch.tensor([[0], [1]]), y=torch.ones(20)) for i in range(3)]
    splits = {"train": torch.tensor([0, 1]), "test": torch.tensor([2])}
    path = tmp_path / "pairs.phg"
    GraphStore.from_pyg(graphs, metadata=metadata, splits=splits).save(path)
    return path


def test_prepare_packs_a_benchmark(tmp_path):
    write_zinc(tmp_path)
    path = tmp_path / "zinc.phg"
    result = run(app, ["data", "prepare", "zinc", "--root", str(tmp_path), "-o", str(path), "--any-size"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{path}: GraphStore('zinc', 13 graphs")
    assert "reading test" in result.stderr
    assert "writing" in result.stderr
    assert len(GraphStore.load(path)) == 13


def test_prepare_insists_on_the_published_sizes(tmp_path):
    write_zinc(tmp_path)
    path = tmp_path / "zinc.phg"
    result = run(app, ["data", "prepare", "zinc", "--root", str(tmp_path), "-o", str(path)])
    assert result.exit_code == 1
    assert "train has 6 graphs, not 10,000" in result.stderr
    assert not path.exists()


def test_prepare_without_a_network_fails_in_one_message(tmp_path):
    """In a process of its own: no stack trace, nothing on stdout, exit code 1."""
    refuse = "import urllib.request as u\ndef no(*a, **k): raise OSError('no network')\nu.urlopen = no\n"
    command = ["data", "prepare", "mnist", "--root", str(tmp_path), "-o", str(tmp_path / "a.phg")]
    code = f"import sys\n{refuse}from phcgnn.cli.main import app\napp({command!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "Error: MNIST_v2.pt in" in result.stderr
    assert f"put it at {tmp_path / 'MNIST' / 'raw' / 'MNIST_v2.zip'}" in result.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["zink", "-o", "a.phg"], "Did you mean"),
        (["zinc"], "Missing option"),
        (["zinc", "-o", "nix/a.phg"], "there is no folder"),
        (["zinc", "-o", "."], "is a folder"),
    ],
)
def test_prepare_used_wrongly(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    result = run(app, ["data", "prepare", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_info_prints_a_table(stored):
    result = run(app, ["data", "info", str(stored)])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for line in ("name pairs", "graphs 3", "nodes a graph 2.0", "splits train 2, test 1", "holds y", "node features 5"):
        assert line in lines, line
    assert any(line.startswith("targets t0, t1") and line.endswith("... (20)") for line in lines)


def test_info_prints_json(stored):
    facts = json.loads(run(app, ["data", "info", "--json", str(stored)]).stdout)
    assert facts["splits"] == {"train": 2, "test": 1}
    assert facts["node_features"] == [5]
    assert facts["edges"] == 3
    assert len(facts["targets"]) == 20


def test_info_of_a_bad_file(stored):
    stored.write_bytes(stored.read_bytes()[:-5])
    result = run(app, ["data", "info", str(stored)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "cut short" in result.stderr
    assert run(app, ["data", "info", str(stored) + "x"]).exit_code == 1
    assert run(app, ["data", "info"]).exit_code == 2
