from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import safetensors.torch
import torch

from phcgnn.data import GraphStore, phg
from phcgnn.data.texts import Texts
from phcgnn.errors import DataError
from phcgnn.tensorfile import write_tensors

from .conftest import make_metadata
from .test_graphs import rich


def header_of(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def write_header(path, header, body):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def rewrite(path, tensors):
    """Write tensors as a file whose checksum is right, so that only their values can be wrong."""
    phg.write_phg(path, tensors, make_metadata())


@pytest.mark.parametrize("verify", [True, False])
def test_round_trip(tmp_path, verify):
    store = rich()
    path = tmp_path / "a.phg"
    store.save(path)
    again = GraphStore.load(path, verify=verify)
    assert again.metadata == store.metadata
    assert list(again.tensors()) == list(store.tensors())  # splits keep their order
    for name, tensor in store.tensors().items():
        assert again.tensors()[name].dtype == tensor.dtype
        assert torch.equal(again.tensors()[name].nan_to_num(7), tensor.nan_to_num(7)), name
    assert again.ids == store.ids
    assert torch.equal(again.batch([3, 1]).x, store.batch([3, 1]).x)
    again.save(tmp_path / "b.phg")
    assert (tmp_path / "b.phg").read_bytes() == path.read_bytes()


def test_an_empty_store_and_one_without_extras(tmp_path, store):
    for number, kept in enumerate((GraphStore.from_pyg([], metadata=make_metadata()), store)):
        kept.save(tmp_path / f"{number}.phg")
        again = GraphStore.load(tmp_path / f"{number}.phg")
        assert len(again) == len(kept)
        assert again.ids is again.smiles is again.weights is None


def test_other_tools_can_read_it(tmp_path, store):
    store.save(tmp_path / "a.phg")
    found = safetensors.torch.load_file(tmp_path / "a.phg")
    assert found.keys() == store.tensors().keys()
    assert torch.equal(found["edge_index"], store.edge_index)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells what is mapped")
def test_tensors_are_mapped_not_read(tmp_path, store):
    store.save(tmp_path / "a.phg")
    again = GraphStore.load(tmp_path / "a.phg")
    ranges = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "a.phg" in line]
    where = again.x.data_ptr()
    assert any(int(low, 16) <= where < int(high, 16) for low, high in (text.split("-") for text in ranges))
    again.save(tmp_path / "a.phg")  # onto itself: the mapping outlives the name
    assert torch.equal(again.x, store.x)
    assert len(GraphStore.load(tmp_path / "a.phg")) == len(store)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, store, monkeypatch):
    path = tmp_path / "a.phg"
    store.save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        rich().save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.phg"]


def test_where_it_cannot_be_written(tmp_path, store):
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
        store.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist; create it"):
        store.save(tmp_path / "nix" / "a.phg")


@pytest.mark.parametrize("kept", [0, 4, 60, 0.5, 0.99, -1])
def test_a_truncated_file_is_refused_by_name(tmp_path, store, kept):
    path = tmp_path / "cut.phg"
    store.save(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(kept * len(raw)) if isinstance(kept, float) else kept])
    for verify in (True, False):
        with pytest.raises(DataError, match=r"cut\.phg is no phcgnn\.store file, or it was cut short.*write it again"):
            GraphStore.load(path, verify=verify)


def test_any_altered_byte_is_noticed(tmp_path):
    path = tmp_path / "altered.phg"
    rich(6).save(path)
    raw = bytearray(path.read_bytes())
    for at in range(0, len(raw), 13):
        changed = bytearray(raw)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(DataError, match=r"altered\.phg"):
            GraphStore.load(path)


def test_foreign_files_are_refused_by_name(tmp_path):
    path = tmp_path / "foreign.phg"
    safetensors.torch.save_file({"x": torch.zeros(3)}, path)
    with pytest.raises(DataError, match=r"foreign\.phg is .* of the kind another program's, expected phcgnn\.store"):
        GraphStore.load(path)
    path.write_text("a,b\n1,2\n" * 100)
    with pytest.raises(DataError, match=r"foreign\.phg is no phcgnn\.store file"):
        GraphStore.load(path)
    with pytest.raises(DataError, match="is a folder"):
        GraphStore.load(tmp_path)
    with pytest.raises(DataError, match=r"nix\.phg does not exist; expected .* phcgnn\.store: write it again"):
        GraphStore.load(tmp_path / "nix.phg")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"schema": "2"}, "has schema 2, but this phcgnn reads up to 1; install a newer phcgnn"),
        ({"schema": "one"}, "is damaged: its schema number is 'one'"),
        ({"format": "phcgnn.checkpoint"}, "is a safetensors file of the kind phcgnn.checkpoint, expected phcgnn.store"),
        ({"text": "{}"}, "was altered after it was written: its checksum does not agree"),
        ({"sha256": "0"}, "was altered after it was written: its checksum does not agree"),
    ],
)
def test_a_wrong_header_is_refused_by_name(tmp_path, store, changes, message):
    path = tmp_path / "head.phg"
    store.save(path)
    header, body = header_of(path)
    header["__metadata__"] |= changes
    write_header(path, header, body)
    with pytest.raises(DataError, match=rf"head\.phg {message}"):
        GraphStore.load(path)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "text, message",
    [
        ("", r"is damaged \(JSONDecodeError"),
        ("[]", r"is damaged \(TypeError"),
        ('{"tensors": []}', r"is damaged \(KeyError: 'store'"),
        ('{"tensors": [], "store": {}}', r"is damaged \(ValueError: StoreMetadata: missing class_names"),
        ('{"tensors": ["y"], "store": METADATA}', r"is damaged: it lacks edge_attr, edge_index, edge_ptr, node_ptr, x"),
        ('{"tensors": ["z"], "store": METADATA}', r"is damaged \(KeyError: 'z'"),
    ],
)
def test_a_wrong_text_is_refused_by_name_even_where_the_checksum_agrees(tmp_path, store, text, message, verify):
    path = tmp_path / "text.phg"
    text = text.replace("METADATA", make_metadata().to_json())
    write_tensors(path, store.tensors(), text, format="phcgnn.store", schema=1)
    with pytest.raises(DataError, match=rf"text\.phg {message}.*write it again"):
        GraphStore.load(path, verify=verify)


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("x", lambda t: t + 300, r"node feature 0 is .* expected 0 to 299"),
        ("x", lambda t: t[:-1], "`node_ptr` must rise from 0 to"),
        ("x", lambda t: t[:, 0], "`x` has shape"),
        ("edge_attr", lambda t: t[:-1], "`edge_attr` has shape"),
        (
            "edge_attr",
            lambda t: t.float(),
            "`edge_attr` must be integers, since its features are categories, got torch.float32",
        ),
        ("edge_index", lambda t: t + 1, "has an edge from node"),
        ("edge_index", lambda t: t[:1], "`edge_index` has shape"),
        ("edge_index", lambda t: t.flip(1), "has an edge|not sorted by destination"),
        ("node_ptr", lambda t: t.flip(0), "`node_ptr` must rise from 0 to"),
        ("node_ptr", lambda t: t.int(), "`node_ptr` must be a vector of int64"),
        ("edge_ptr", lambda t: t[:-1], "`edge_ptr` must rise from 0 to"),
        ("y", lambda t: t + 2, "expected 0, 1, or NaN"),
        ("y", lambda t: t[:-1], "`y` has shape"),
        ("pos", lambda t: t[:-1], "`pos` has shape"),
        ("split.train", lambda t: t + 100, "split 'train' holds the position"),
        ("ids.ptr", lambda t: t[:-1], "`ids.ptr` must rise from 0 to"),
        ("ids.ptr", lambda t: t[1:], "`ids.ptr` must rise from 0 to"),
        ("ids.ptr", lambda t: torch.cat([t[:1], t]), "there are 23 graphs, but 24 ids"),
        ("ids.ptr", lambda t: t.flip(0), "`ids.ptr` must rise from 0 to"),
        ("ids.ptr", lambda t: t.int(), "`ids.ptr` must be a vector of int64, got torch.int32"),
        ("ids.ptr", lambda t: t[:, None], r"`ids.ptr` must be a vector of int64, got torch.int64 of shape \(24, 1\)"),
        ("ids.data", lambda t: t.float(), "`ids.data` must be a vector of uint8, got torch.float32"),
        ("ids.data", lambda t: t + 128, "`ids` hold bytes that are no UTF-8 text"),
        ("edge_index", lambda t: t.double() * float("nan"), "`edge_index` must hold integers, got torch.float64"),
        ("edge_index", lambda t: t[0, 0], r"`edge_index` has shape \(\), expected"),
        ("pos", lambda t: t[0, 0], r"`pos` has shape \(\), expected"),
        ("pos", lambda t: t.long(), "`pos` must be float32, got torch.int64"),
        ("weights", lambda t: t.int(), "`weights` must be float32, got torch.int32"),
    ],
)
def test_values_out_of_range_are_refused_even_where_the_checksum_agrees(tmp_path, name, change, message):
    tensors = rich().tensors()
    tensors[name] = change(tensors[name]).contiguous()
    rewrite(tmp_path / "bad.phg", tensors)
    with pytest.raises(DataError, match=rf"bad\.phg is damaged: .*({message})"):
        GraphStore.load(tmp_path / "bad.phg")


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ["ids.data", "ids.ptr", "smiles.data", "smiles.ptr"])
def test_half_a_list_of_texts_is_refused(tmp_path, name, verify):
    tensors = rich().tensors()
    del tensors[name]
    rewrite(tmp_path / "bad.phg", tensors)
    with pytest.raises(DataError, match=rf"bad\.phg is damaged: it lacks {name}"):
        GraphStore.load(tmp_path / "bad.phg", verify=verify)


def test_a_pointer_into_the_middle_of_a_letter_is_refused(tmp_path, store):
    store.ids = Texts.pack(["ö"] * len(store))
    tensors = store.tensors()
    tensors["ids.ptr"][1] = 1
    rewrite(tmp_path / "bad.phg", tensors)
    with pytest.raises(DataError, match=r"`ids\.ptr` cuts a letter in two"):
        GraphStore.load(tmp_path / "bad.phg")


@pytest.mark.parametrize("name", ["x", "edge_index", "edge_attr"])
def test_shapes_and_types_are_checked_even_where_values_are_not(tmp_path, name):
    for change in (lambda t: t[:-1], lambda t: t[..., None], lambda t: t.double()):
        tensors = rich().tensors()
        tensors[name] = change(tensors[name]).contiguous()
        rewrite(tmp_path / "bad.phg", tensors)
        with pytest.raises(DataError, match=r"bad\.phg is damaged"):
            GraphStore.load(tmp_path / "bad.phg", verify=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["x"].update(data_offsets=[0, 10**9]),
        lambda h: h["x"].update(data_offsets=[2**60, 2**61]),
        lambda h: h["x"].update(shape=[2**40, 9]),
        lambda h: h["x"].update(shape=[-1, 9]),
        lambda h: h["x"].update(shape=[float("nan"), 9]),
        lambda h: h["x"].update(dtype="F99"),
        lambda h: h.pop("x"),
        lambda h: h["__metadata__"].update(schema=1),
        lambda h: h["__metadata__"].update(schema="0"),
        lambda h: h["__metadata__"].update(schema="٣"),
        lambda h: h["__metadata__"].update(schema="9" * 5000),
        lambda h: h["__metadata__"].update(text="[" * 100_000),
    ],
)
@pytest.mark.parametrize("verify", [True, False])
def test_a_hostile_header_is_refused_by_name(tmp_path, store, change, verify):
    path = tmp_path / "hostile.phg"
    store.save(path)
    header, body = header_of(path)
    change(header)
    write_header(path, header, body)
    with pytest.raises(DataError, match=r"hostile\.phg"):
        GraphStore.load(path, verify=verify)


@pytest.mark.parametrize("length", [0, 1, 2**31, 100_000_001, 2**63, 2**64 - 1])
def test_a_header_length_that_lies_is_refused(tmp_path, store, length):
    path = tmp_path / "length.phg"
    store.save(path)
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(DataError, match=r"length\.phg is no phcgnn\.store file"):
        GraphStore.load(path)


def test_cut_anywhere_in_the_header_and_at_the_border_of_every_tensor(tmp_path, store):
    path = tmp_path / "cut.phg"
    store.save(path)
    raw = path.read_bytes()
    header, body = header_of(path)
    start = len(raw) - len(body)
    ends = {start + offset for name, entry in header.items() if name[0] != "_" for offset in entry["data_offsets"]}
    for kept in {*range(0, start, 41), 7, 8, 9, start - 1, *(ends - {len(raw)}), *(end - 1 for end in ends)}:
        path.write_bytes(raw[:kept])
        with pytest.raises(DataError, match=r"cut\.phg is no phcgnn\.store file, or it was cut short"):
            GraphStore.load(path, verify=False)


def test_writers_at_the_same_time_leave_one_whole_file(tmp_path, store):
    path = tmp_path / "a.phg"
    stores = [store, rich()]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: stores[number % 2].save(path), range(40)))
    assert len(GraphStore.load(path)) == len(store)
    assert os.listdir(tmp_path) == ["a.phg"]


def test_unsorted_edges_are_refused(tmp_path, store):
    tensors = store.tensors()
    i = int((store.edge_ptr.diff() > 3).nonzero()[0])
    start, end = store.edge_ptr[i : i + 2].tolist()
    edges = tensors["edge_index"].clone()
    edges[:, start:end] = edges[:, start:end].flip(1)
    rewrite(tmp_path / "bad.phg", tensors | {"edge_index": edges})
    with pytest.raises(DataError, match=r"bad\.phg is damaged: the edges of graphs .* are not sorted by destination"):
        GraphStore.load(tmp_path / "bad.phg")


def test_large_stores_are_checked_in_blocks(tmp_path, store, monkeypatch):
    monkeypatch.setattr("phcgnn.data.validation.BLOCK", 5)
    store.save(tmp_path / "a.phg")
    assert len(GraphStore.load(tmp_path / "a.phg")) == len(store)
    tensors = store.tensors()
    x = tensors["x"].clone()
    x[-1, 1] = 3
    rewrite(tmp_path / "bad.phg", tensors | {"x": x})
    with pytest.raises(DataError, match="node feature 1 is 3 in graph 22"):
        GraphStore.load(tmp_path / "bad.phg")
