from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch

from phcgnn.data.molecules import featuriser, table_to_store
from phcgnn.data.molecules.table import make_table
from phcgnn.errors import DataError
from phcgnn.inference import Predictor, model_folders
from phcgnn.inference import predictor as module
from phcgnn.models import ModelFolderError, load_model
from phcgnn.nn import PHMLinear

from .conftest import BAD, SMILES, make_model, many

GOOD = [i for i in range(len(SMILES)) if i not in BAD]


def by_hand(folder, smiles):
    """The network as it was saved, unfolded, on one molecule at a time, decoded in plain arithmetic."""
    model, about = load_model(folder)
    rows = []
    for text in smiles:
        store = table_to_store(make_table([text], {"y": [0.0]}))
        with torch.inference_mode():
            output = model(store.batch(torch.tensor([0])))[0].double()
        if about["task"] == "classification":
            output = 1 / (1 + torch.exp(-output))
        elif about["task"] == "multiclass":
            output = torch.exp(output) / torch.exp(output).sum()
        else:
            scale = about["normalisation"]
            output = output * torch.tensor(scale["deviation"]).double() + torch.tensor(scale["mean"]).double()
        rows.append(output.numpy())
    return np.stack(rows)


@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
def test_equals_the_unfolded_network_molecule_by_molecule(models, task):
    predictor = Predictor.load(models[task])
    assert not any(isinstance(layer, PHMLinear) for layer in predictor.members[0][0].modules())
    found = predictor(SMILES)
    np.testing.assert_allclose(found.mean[GOOD], by_hand(models[task], [SMILES[i] for i in GOOD]), rtol=1e-4, atol=1e-5)
    assert np.isnan(found.mean[[3, 7]]).all()
    assert found.deviation is None
    assert np.ptp(found.mean[GOOD], axis=0).min() > 1e-3, "the molecules can be told apart"


def test_errors_say_why_and_an_empty_smiles_is_a_molecule_without_atoms(models):
    found = Predictor.load(models["regression"])(SMILES)
    assert {i for i, error in enumerate(found.errors) if error} == {3, 7}
    assert found.errors[3] == "not a SMILES that RDKit can read"
    assert found.errors[7].startswith("Explicit valence for atom # 1 N")
    assert np.isfinite(found.mean[6]).all()


def test_an_ensemble_is_the_mean_and_the_deviation_of_its_members(models):
    predictor = Predictor.load(models["ensemble"])
    assert len(predictor.members) == 3
    found = predictor(SMILES)
    single = np.stack([Predictor([models["ensemble"] / f"seed-{i}"])(SMILES).mean for i in range(3)])
    np.testing.assert_allclose(found.mean, single.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.deviation, single.std(0), rtol=1e-3, atol=1e-6)
    assert np.nanmin(found.deviation) > 0


@pytest.mark.parametrize("ensemble", [True, False])
def test_no_molecules_are_no_rows(models, ensemble):
    found = Predictor.load(models["ensemble" if ensemble else "regression"])([])
    assert found.mean.shape == (0, 2)
    assert (found.deviation is not None) == ensemble
    assert found.errors == []


def test_chunks_and_batches_change_nothing_but_rounding(models):
    smiles = many(300)
    expected = Predictor.load(models["regression"])(smiles, workers=1).mean
    for batch_size, chunk in ((1, 64), (7, 50), (512, 512)):
        predictor = Predictor.load(models["regression"], batch_size=batch_size)
        parts = list(predictor.stream(iter(smiles), chunk=chunk, workers=1))
        assert [len(part.errors) for part in parts[:-1]] == [chunk] * (len(parts) - 1)
        np.testing.assert_allclose(np.concatenate([part.mean for part in parts]), expected, rtol=1e-4, atol=1e-5)


def test_workers_give_what_one_process_gives(models):
    smiles = many(1100)
    predictor = Predictor.load(models["classification"])
    one, several = predictor(smiles, workers=1), predictor(smiles, workers=2)
    assert np.array_equal(one.mean, several.mean)


def test_a_stream_is_read_only_as_far_as_there_is_work_under_way(models):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield "CCO"

    stream = Predictor.load(models["regression"]).stream(endless(), chunk=4, workers=1)
    assert len(next(stream).errors) == 4
    assert taken <= 4 * (torch.get_num_threads() + 4)
    stream.close()


def test_large_molecules_do_not_share_a_forward_pass(models, monkeypatch):
    predictor = Predictor.load(models["regression"], batch_size=100)
    smiles = many(40)
    expected = predictor(smiles).mean
    monkeypatch.setattr(module, "MOST_NODES", 20)
    graphs, _ = featuriser("ogb")([*smiles, "C" * 50])
    sizes = [len(ptr) - 1 for *_, ptr in module._batches(graphs, 100)]
    assert sum(sizes) == 41
    assert len(sizes) > 10
    assert sizes[-1] == 1, "larger than the bound, so it goes alone"
    np.testing.assert_allclose(predictor(smiles).mean, expected, rtol=1e-4, atol=1e-5)


def test_torch_keeps_its_threads(models):
    before = torch.get_num_threads()
    Predictor.load(models["regression"])(["CCO"])
    assert torch.get_num_threads() == before


def test_an_output_that_is_no_number_is_an_error_of_its_row(models):
    predictor = Predictor.load(models["regression"])
    with torch.no_grad():
        for parameter in predictor.members[0][0].node_encoder.parameters():
            parameter.fill_(float("inf"))
    found = predictor(["CCO", "C1CC"])
    assert found.errors == ["the network's output is not a finite number", "not a SMILES that RDKit can read"]


def test_a_model_folder_needs_nothing_but_its_two_files(models, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for name in ("model.json", "weights.safetensors"):
        shutil.copy(models["regression"] / name, tmp_path / "elsewhere" / name)
    expected = Predictor.load(models["regression"])(SMILES).mean
    assert np.array_equal(Predictor.load(tmp_path / "elsewhere")(SMILES).mean, expected, equal_nan=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"featuriser": None}, "does not say how a SMILES becomes a graph"),
        ({"featuriser": "ogb/2"}, "featuriser 'ogb/2' is not in this release"),
        ({"featuriser": "ogbb"}, "unknown featuriser 'ogbb'"),
        ({"featuriser": ["ogb"]}, "a featuriser is a name"),
        ({"featuriser": "zinc/1"}, r"takes node_features \(119, .*'zinc/1' makes \(28,\)"),
        ({"task": "guess"}, "`task` must be one of regression, classification, multiclass, got 'guess'"),
        ({"targets": None}, "`targets` must be 2 different names, got None"),
        ({"targets": ["logS"]}, "`targets` must be 2 different names"),
        ({"targets": ["a", "a"]}, "`targets` must be 2 different names"),
        ({"classes": ["a", "b"]}, "`classes` must be nothing"),
        ({"normalisation": {"mean": [1.0]}}, "must hold 2 finite numbers as `mean`"),
        ({"normalisation": {"mean": [1.0, 2.0], "deviation": [0.0, 1.0]}}, "as `deviation`"),
        ({"normalisation": 3}, "`normalisation` must be nothing, or"),
    ],
)
def test_a_description_that_was_altered_is_refused(models, tmp_path, changes, message):
    folder = shutil.copytree(models["regression"], tmp_path / "model")
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | changes))
    with pytest.raises(DataError, match=message):
        Predictor.load(folder)


def test_an_infinite_normalisation_is_refused(models, tmp_path):
    folder = shutil.copytree(models["regression"], tmp_path / "model")
    text = (folder / "model.json").read_text().replace("-3.0", "Infinity")
    assert math.isinf(json.loads(text)["normalisation"]["mean"][0])
    (folder / "model.json").write_text(text)
    with pytest.raises(DataError, match="finite numbers as `mean`"):
        Predictor.load(folder)


def test_the_members_of_an_ensemble_have_to_agree(models, tmp_path):
    make_model(tmp_path / "seed-0")
    make_model(tmp_path / "seed-1", targets=["logS", "pKa"])
    with pytest.raises(DataError, match=r"seed-1: its targets is .*pKa.* has to agree"):
        Predictor.load(tmp_path)


def test_which_folders_hold_the_model(models, tmp_path):
    assert model_folders(models["regression"]) == [models["regression"]]
    assert [path.name for path in model_folders(models["ensemble"])] == ["seed-0", "seed-1", "seed-2"]
    with pytest.raises(DataError, match="there is no such folder"):
        model_folders(tmp_path / "nix")
    with pytest.raises(DataError, match=r"no model in it: there is no model\.json"):
        model_folders(tmp_path)
    for name in ("seed-2", "seed-10"):
        make_model(tmp_path / name)
    assert [path.name for path in model_folders(tmp_path)] == ["seed-2", "seed-10"]
    (tmp_path / "seed-3").mkdir()
    with pytest.raises(DataError, match="seed-3 did not finish"):
        model_folders(tmp_path)
    with pytest.raises(ModelFolderError, match="no model"):
        Predictor([tmp_path / "seed-3"])
    with pytest.raises(ValueError, match="at least one model folder"):
        Predictor([])
    with pytest.raises(ValueError, match="`batch_size` must be at least 1"):
        Predictor.load(models["regression"], batch_size=0)
