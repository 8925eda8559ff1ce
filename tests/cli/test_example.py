import csv

import pytest
from typer.testing import CliRunner

from phcgnn.cli.main import app

pytest.importorskip("rdkit")


def test_an_example_table_has_as_many_rows_as_asked_for(tmp_path):
    path = tmp_path / "molecules.csv"
    result = CliRunner().invoke(app, ["data", "example", "-o", str(path), "--rows", "7"])
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 7
    assert rows[0] == {"id": "1", "smiles": "CC1=CC(=O)C=CC1=O", "plogp": "-0.3626"}


def test_a_folder_that_is_not_there_is_wrong_usage(tmp_path):
    result = CliRunner().invoke(app, ["data", "example", "-o", str(tmp_path / "nowhere" / "molecules.csv")])
    assert result.exit_code == 2
