from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import zipfile

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import aggr

from phcgnn import PHCGNN
from phcgnn.models import ModelFolderError, load_model, save_model
from phcgnn.models import folder as module

SMALL = {"node_features": (5,), "edge_features": (4,), "n": 2, "width": 8, "layers": 2, "downstream": (6,)}
GRAPH = Data(
    x=torch.tensor([[1], [4], [0]]), edge_index=torch.tensor([[0, 1, 2], [1, 2, 1]]), edge_attr=torch.tensor([1, 2, 3])
)


def build(**options):
    model = PHCGNN(**{**SMALL, **options})
    model(GRAPH)
    return model.eval()


@pytest.fixture
def saved(tmp_path):
    return save_model(build(), tmp_path / "model", {"task": "regression"})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share_rule": True},
        {"learn_rule": False},
        {"dense": True},
        {"norm": "whitening", "aggregation": "softmax"},
        {"aggregation": "pna", "degrees": (0, 3), "skip": "concat"},
        {"dtype": torch.float64},
        {"dtype": torch.bfloat16},
    ],
)
def test_round_trip(tmp_path, options):
    model = build(**options)
    metadata = {"task": "classification", "targets": ["y"], "normalisation": {"mean": [0.5]}, "seed": None}
    state = torch.random.get_rng_state()
    read, extra = load_model(save_model(model, tmp_path / "a" / "model", metadata))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not read.training
    assert read.config == model.config
    assert {name: extra[name] for name in metadata} == metadata
    assert extra["versions"]["torch"] == torch.__version__
    expected = model.state_dict()
    for name, value in read.state_dict().items():
        assert value.dtype == expected[name].dtype
        assert torch.equal(value, expected[name]), name
    assert torch.equal(read(GRAPH), model(GRAPH))
    assert sorted(path.name for path in (tmp_path / "a").rglob("*")) == ["model", "model.json", "weights.safetensors"]
    if "share_rule" in options:
        assert read.convs[0].transform.linear1.rule is read.rule


def test_a_folder_that_exists_keeps_its_other_files(saved):
    (saved / "metrics.csv").write_text("epoch\n")
    save_model(build(width=16), saved)
    assert load_model(saved).model.config.width == 16
    assert sorted(path.name for path in saved.iterdir()) == ["metrics.csv", "model.json", "weights.safetensors"]


def test_a_write_that_fails_leaves_what_was_there(saved, monkeypatch):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}

    def fail(fd):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    for target in (saved, saved.parent / "new"):
        with pytest.raises(OSError, match="disk full"):
            save_model(build(), target)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("low", [b"\x80", b"PK"], ids=["pickle", "zip"])
def test_a_header_whose_length_begins_as_a_pickle_does(saved, low):
    """One network in 32 has a header of such a length."""
    expected = load_model(saved).model(GRAPH)
    path = saved / "weights.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    padding = (int.from_bytes(low, "little") - length) % 256 ** len(low)
    content = (
        (length + padding).to_bytes(8, "little") + content[8 : 8 + length] + b" " * padding + content[8 + length :]
    )
    assert content.startswith(low)
    path.write_bytes(content)
    change(saved, weights={"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    assert torch.equal(load_model(saved).model(GRAPH), expected)


def change(folder, **values):
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def truncate(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("hostile-was-run",)


def as_pickle(path):
    path.write_bytes(pickle.dumps(Hostile()))


def as_torch_file(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Hostile(), protocol=2))


DAMAGE = {
    "no json": (lambda f: (f / "model.json").unlink(), "there is no model.json in it"),
    "no weights": (lambda f: (f / "weights.safetensors").unlink(), "there is no weights.safetensors in it"),
    "cut json": (lambda f: truncate(f / "model.json", 100), "model.json: truncated, or no JSON"),
    "cut weights": (lambda f: truncate(f / "weights.safetensors", 999), "has 999 bytes, expected .*truncated"),
    "altered weights": (lambda f: flip(f / "weights.safetensors"), "its digest is not the one in model.json"),
    "newer": (lambda f: change(f, schema=9, versions={"phcgnn": "7.0"}), "layout 9 by phcgnn 7.0.*Install a newer"),
    "no schema": (lambda f: change(f, schema=None), "`schema` must be a positive number, got None"),
    "other kind": (lambda f: change(f, architecture="GIN"), "does not describe a PHCGNN"),
    "no digest": (lambda f: change(f, weights={}), "`weights` must hold"),
    "bad config": (lambda f: change(f, config={"widht": 3}), "unknown field 'widht'. Did you mean 'width'"),
    "bad dtype": (lambda f: change(f, dtype="load"), "the architecture cannot be read"),
    "pickle": (lambda f: as_pickle(f / "weights.safetensors"), "a pickle, which is never read here"),
    "torch file": (lambda f: as_torch_file(f / "weights.safetensors"), "a pickle, which is never read here"),
}


@pytest.mark.parametrize("damage, message", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused_and_nothing_runs(saved, damage, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    damage(saved)
    with pytest.raises(ModelFolderError, match=message):
        load_model(saved)
    assert not (tmp_path / "hostile-was-run").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"width": 16}, "it has in another shape"),
        ({"layers": 3}, "it lacks convs.2"),
        ({"layers": 1}, "it has besides convs.1"),
    ],
)
def test_weights_of_another_network(saved, options, message):
    change(saved, config=build(**options).config.to_dict())
    with pytest.raises(ModelFolderError, match=message):
        load_model(saved)


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(ValueError, match="`aggregation` was given as an object"):
        save_model(build(aggregation=aggr.SumAggregation()), tmp_path / "m")
    with pytest.raises(ValueError, match="`metadata` may not hold 'config', 'schema'"):
        save_model(build(), tmp_path / "m", {"schema": 3, "config": 1})
    with pytest.raises(ValueError, match="JSON"):
        save_model(build(), tmp_path / "m", {"mean": math.nan})
    assert list(tmp_path.iterdir()) == []
    assert module.SCHEMA == 1
