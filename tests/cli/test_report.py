import importlib.util
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phcgnn.cli.main import app

pytest.importorskip("rdkit")

FILES = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "conftest.py"
SMALL = [
    part
    for setting in ("width=8", "n=2", "layers=1", "downstream=[8]", "downstream_dropout=0.0")
    for part in ("--set", f"model.{setting}")
]


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("table") / "molecules.csv"
    rows = [f"{'C' * (number // 4 + 1)}{'ONSF'[number % 4]},{number}" for number in range(40)]
    path.write_text("\n".join(["smiles,y", *rows]) + "\n")
    return path


def train(table, out, *arguments):
    source = ("--data-path", table, "--target-columns", "y", "--split", "random")
    return call("train", *source, "--epochs", 1, *SMALL, *arguments, "-o", out)


def test_train_writes_a_report_if_asked(table, tmp_path):
    pytest.importorskip("matplotlib")
    plain = train(table, tmp_path / "plain", "-q")
    assert plain.exit_code == 0, plain.output
    assert not (tmp_path / "plain" / "report.html").exists()
    asked = train(table, tmp_path / "asked", "--report")
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout)["metric"] == "mae"  # the result alone stands on stdout
    assert "figures" in asked.stderr
    assert "Weights and rules" in (tmp_path / "asked" / "report.html").read_text()
    again = call("report", tmp_path / "plain")
    assert again.exit_code == 0, again.output
    written = [Path(path) for path in json.loads(again.stdout)["written"]]
    assert written[0] == tmp_path / "plain" / "report.html"
    assert all(path.is_file() for path in written)
    assert train(table, tmp_path / "plain", "-q", "--overwrite").exit_code == 0
    assert not (tmp_path / "plain" / "report.html").exists()  # it spoke of another run


def test_without_matplotlib_the_command_says_what_to_install(table, tmp_path, monkeypatch):
    assert train(table, tmp_path / "out", "-q").exit_code == 0
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = call("report", tmp_path / "out")
    assert found.exit_code == 0
    assert "pip install 'phcgnn[report]'" in found.stderr
    assert [Path(path).name for path in json.loads(found.stdout)["written"]] == ["report.html"]


def test_a_folder_without_a_run_is_an_error(tmp_path):
    found = call("report", tmp_path)
    assert found.exit_code == 1
    assert "there is no finished run in it" in found.stderr
    found = call("report", tmp_path / "none")
    assert found.exit_code == 1
    assert "no such folder" in found.stderr


def test_reproduce_makes_the_report_unless_told_not_to(tmp_path):
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("benchmark_files", FILES)
    files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(files)
    files.write_zinc(tmp_path, {"train": 8, "val": 4, "test": 4})
    small = [part for setting in ("width=8", "layers=1", "downstream=[8,8]") for part in ("--set", f"model.{setting}")]
    command = ["reproduce", "table2", "-o", tmp_path / "out", "--root", tmp_path, "--any-size", "--device", "cpu", "-q"]
    command += ["--models", "zinc-100k-phc4", "--runs", 1, "--epochs", 1, *small]
    found = call(*command, "--no-report")
    assert found.exit_code == 0, found.output
    assert [Path(path).name for path in json.loads(found.stdout)["written"]] == ["results.csv", "table.md", "table.tex"]
    assert not (tmp_path / "out" / "report.html").exists()
    found = call(*command)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["written"][-1] == str(tmp_path / "out" / "report.html")
    assert "PHC-4" in (tmp_path / "out" / "report.html").read_text()
    assert list((tmp_path / "out" / "figures").glob("*.svg"))
