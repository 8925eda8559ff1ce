import csv
import json

import pytest
from typer.testing import CliRunner

from phcgnn.cli.main import app

pytest.importorskip("rdkit")


def test_the_demo_trains_compares_predicts_and_says_what_next(tmp_path):
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo"), "--epochs", "1", "-q"])
    assert result.exit_code == 0, result.output
    one, four = (json.loads((tmp_path / "demo" / name / "result.json").read_text()) for name in ("phc-1", "phc-4"))
    assert 2 < one["parameters"] / four["parameters"] < 4
    for shown in (f"{one['parameters']:,}", f"{four['scores']['test']['mae']:.3f}", "What next?"):
        assert shown in result.stdout
    lines = result.stdout.split("< molecules.csv\n")[1].split("\n\n")[0].splitlines()
    rows = list(csv.DictReader(lines))
    assert [row["name"] for row in rows] == ["ethanol", "aspirin", "caffeine"]
    assert all(-20 < float(row["logP_SA_cycle_normalized"]) < 20 and not row["error"] for row in rows)


def test_a_file_where_the_folder_should_be_is_wrong_usage(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "is a file; give a folder" in result.output.replace("\n", " ").replace("│", "")
