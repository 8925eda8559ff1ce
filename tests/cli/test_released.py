from __future__ import annotations

import json
import pickle

import pytest
import torch
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


@pytest.mark.data
@pytest.mark.parametrize(
    "name, data, target", [("zinc_phc5_100k", "zinc", "logP_SA_cycle_normalized"), ("molhiv_phc4", "ogb", "HIV_active")]
)
def test_an_imported_model_predicts_from_smiles_and_is_scored(shared_data, tmp_path, name, data, target):
    """A store of the benchmark does not say what made its features: the model's word stands, its counts are checked."""
    pytest.importorskip("rdkit")
    from phcgnn.data import GraphStore
    from phcgnn.data.metadata import StoreMetadata
    from phcgnn.data.molecules import featuriser

    weights, folder = shared_data / "reference_weights" / f"{name}.safetensors", tmp_path / "model"
    assert run(app, ["import-released", str(weights), "-o", str(folder)]).exit_code == 0
    made = featuriser(data)
    flat, _ = made(["CCO", "c1ccccc1"])
    metadata = StoreMetadata(
        name="two",
        task="regression" if data == "zinc" else "classification",
        targets=(target,),
        metric="mae" if data == "zinc" else "roc_auc",
        node_features=made.node_features,
        edge_features=made.edge_features,
    )
    labels = torch.tensor([[0.0], [1.0]])
    store = GraphStore.from_flat([flat], metadata=metadata, y=labels, splits={"test": torch.arange(2)})
    store.save(tmp_path / "two.phg")
    result = run(app, ["evaluate", "--model", str(folder), "--data", str(tmp_path / "two.phg"), "--device", "cpu"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["graphs"] == 2

    (tmp_path / "in.csv").write_text("smiles\nCCO\nc1ccccc1\n")
    arguments = ["predict", "--model", str(folder), "-i", str(tmp_path / "in.csv"), "--device", "cpu"]
    result = run(app, [*arguments, "-o", str(tmp_path / "out.csv")])
    assert result.exit_code == 0, result.stderr
    head, *rows = (tmp_path / "out.csv").read_text().splitlines()
    assert head.split(",")[:2] == ["smiles", target]
    with torch.no_grad():
        expected = released.load(weights)(store.batch([0, 1]))
    expected = expected.sigmoid() if data == "ogb" else expected
    assert [float(row.split(",")[1]) for row in rows] == pytest.approx(expected.flatten().tolist(), rel=1e-4)
