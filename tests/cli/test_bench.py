from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from phcgnn.cli.main import app

QUICK = ["bench", "--device", "cpu", "--preset", "molhiv-phc4", "--seconds", "0.1"]


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_table_by_default_and_one_object_on_request():
    result = CliRunner().invoke(app, [*QUICK, "--threads", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["machine"]["threads"] == 1
    assert [line["preset"] for line in found["networks"]] == ["molhiv-phc4"]
    result = CliRunner().invoke(app, ["bench", "--device", "auto", *QUICK[3:]])
    assert result.exit_code == 0, result.output
    assert "110,909" in result.stdout


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--preset", "zinc-100k-phc55"], "unknown preset"),
        (["--preset", "mnist-phc4"], "cannot be made up"),
        (["--device", "tpu"], "must be auto, cpu or cuda"),
        (["--seconds", "0"], "0.1"),
    ],
)
def test_wrong_usage(arguments, said):
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", "").split())
