from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from phcgnn import __version__
from phcgnn.cli.main import app

run = CliRunner().invoke


def test_show_prints_table_and_laws():
    result = run(app, ["algebra", "show", "quaternion"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "│ i │ i │ -1 │  k │ -j │" in lines
    assert " yes  associative" in lines
    assert "  no  commutative" in lines


@pytest.mark.parametrize("name", ["sedenion", "clifford:2,1,0", "cyclic:3", "cayley-dickson:32"])
def test_families_and_wide_tables_are_not_cut(name):
    result = run(app, ["algebra", "show", name])
    assert result.exit_code == 0
    assert "…" not in result.stdout
    widths = {len(line) for line in result.stdout.splitlines() if line.startswith("│")}
    assert len(widths) == 1


def test_list_names_what_show_understands():
    names = run(app, ["algebra", "list"]).stdout.split()
    assert "octonion" in names
    for name in names:
        example = name.replace("P,Q,R", "1,1,0").replace(":N", ":4")
        assert run(app, ["algebra", "show", example]).exit_code == 0, example


def test_wrong_usage_is_exit_code_two():
    result = run(app, ["algebra", "show", "octonoin"])
    assert result.exit_code == 2
    assert "Did you mean 'octonion'" in " ".join(result.stderr.split()).replace("│ ", "").replace(" │", "")
    assert run(app, ["algebra", "show"]).exit_code == 2


def test_the_installed_command():
    result = subprocess.run([sys.executable, "-m", "phcgnn", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == __version__
