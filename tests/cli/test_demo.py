import csv
import json

import pytest
from typer.testing import CliRunner

from phcgnn.cli import demo
from phcgnn.cli.main import app

pytest.importorskip("rdkit")


def test_the_demo_trains_compares_predicts_and_says_what_next(tmp_path):
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo"), "--epochs", "1", "-q"])
    assert result.exit_code == 0, result.output
    one, four = (json.loads((tmp_path / "demo" / name / "result.json").read_text()) for name in ("phc-1", "phc-4"))
    assert 2 < one["parameters"] / four["parameters"] < 4
    for shown in (f"{one['parameters']:,}", f"{four['scores']['test']['mae']:.3f}", "What next?"):
        assert shown in result.stdout
    assert "the mean, always" in result.stdout
    lines = result.stdout.split("< molecules.csv\n")[1].split("\n\n")[0].splitlines()
    rows = list(csv.DictReader(lines))
    assert [row["name"] for row in rows] == ["ethanol", "aspirin", "caffeine"]
    assert all(-20 < float(row["logP_SA_cycle_normalized"]) < 20 and not row["error"] for row in rows)


def test_the_commands_that_it_proposes_can_be_typed(monkeypatch, tmp_path):
    monkeypatch.setattr(demo.shutil, "which", lambda name: "/usr/bin/phcgnn")
    assert demo._command() == "phcgnn"
    monkeypatch.setattr(demo.shutil, "which", lambda name: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo.sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert demo._command() == f"{tmp_path}/.venv/bin/python -m phcgnn"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "phcgnn").touch()
    assert demo._command() == ".venv/bin/phcgnn"


def test_a_file_where_the_folder_should_be_is_wrong_usage(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "is a file; give a folder" in " ".join(result.output.replace("│", " ").split())
