from __future__ import annotations

import json
import pickle

import pytest
from typer.testing import CliRunner

from phcgnn.cli.main import app
from phcgnn.models import load_model, released

run = CliRunner().invoke


@pytest.mark.data
@pytest.mark.parametrize(
    "name, skip, metric", [("zinc_phc5_100k", "previous", "regression"), ("molhiv_phc4", "initial", "classification")]
)
def test_import_writes_a_model_folder(shared_data, tmp_path, name, skip, metric):
    weights = shared_data / "reference_weights" / f"{name}.safetensors"
    result = run(app, ["import-released", str(weights), "-o", str(tmp_path / "model")])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(tmp_path / "model")
    saved, expected = load_model(tmp_path / "model"), released.load(weights)
    assert saved.model.config == expected.config
    assert saved.model.config.skip == skip
    assert saved.metadata["task"] == metric
    assert saved.metadata["source"] == {"released": f"{name}.safetensors"}
    for key, value in expected.state_dict().items():
        assert value.equal(saved.model.state_dict()[key])
    result = run(app, ["import-released", str(weights), "-o", str(tmp_path / "other"), "--skip", "concat"])
    assert result.exit_code == 1
    assert "phcgnn import-released:" in result.stderr
    json.loads((tmp_path / "model" / "model.json").read_text())


def test_bad_files_and_options(tmp_path):
    weights = tmp_path / "model.pt"
    weights.write_bytes(pickle.dumps({"a": 1}))
    result = run(app, ["import-released", str(weights), "-o", str(tmp_path / "model")])
    assert result.exit_code == 1
    assert "a bare pickle" in result.stderr
    assert not (tmp_path / "model").exists()
    assert run(app, ["import-released", str(tmp_path / "none.pt"), "-o", "x"]).exit_code == 2
    result = run(app, ["import-released", str(weights), "-o", "x", "--skip", "first"])
    assert result.exit_code == 2
    assert "choose from initial, previous, concat" in result.stderr.replace("\n", " ").replace("│", "")
