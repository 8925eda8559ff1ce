from __future__ import annotations

import errno
import http.server
import os
import shutil
import threading
import zipfile

import pytest
from torch_geometric.datasets import ZINC, GNNBenchmarkDataset

from phcgnn.data.benchmarks import DATASETS, files
from phcgnn.data.benchmarks.base import official_reader
from phcgnn.data.benchmarks.files import Remote, damaged, provide
from phcgnn.data.progress import silent
from phcgnn.errors import DataError

from .conftest import write_ogb, write_superpixels, write_zinc


@pytest.fixture
def server():
    """A server that answers as the path says."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/missing.zip":
                self.send_error(404)
                return
            if self.path == "/silent.zip":
                stop.wait(5)
                return
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"x" * (40 if self.path == "/short.zip" else 100))

        def log_message(self, *_):
            pass

    stop = threading.Event()
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    stop.set()
    running.shutdown()
    running.server_close()


def zipped(folder, path, inner):
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*"):
            if file.is_file():
                archive.write(file, f"{inner}{file.relative_to(folder)}")


def test_what_is_there_is_not_fetched(tmp_path, no_network):
    (tmp_path / "a.txt").write_text("")
    provide(tmp_path, ["a.txt"], [Remote("http://nowhere/a.zip", tmp_path / "a.zip")], silent)


@pytest.mark.parametrize("by_hand", [True, False])
def test_an_archive_is_fetched_or_found_and_unpacked(tmp_path, by_hand):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_text("a")
    (source / "b.txt").write_text("b")
    zipped(source, tmp_path / "far.zip", "top/")
    near = tmp_path / "near.zip"
    if by_hand:
        shutil.copy(tmp_path / "far.zip", near)
    told = []
    url = "http://nowhere/far.zip" if by_hand else (tmp_path / "far.zip").as_uri()
    provide(target, ["sub/a.txt", "b.txt"], [Remote(url, near, "top")], lambda *step: told.append(step))
    assert (target / "sub" / "a.txt").read_text() == "a"
    assert near.exists() == by_hand  # what a person put there stays
    size = (tmp_path / "far.zip").stat().st_size
    assert told == ([] if by_hand else [("fetching near.zip", size, size)])
    assert not list(tmp_path.rglob("*.part"))


def test_nothing_is_written_outside_the_folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("top/../../evil.txt", "x")
        archive.writestr("other/c.txt", "x")
        archive.writestr("top/a.txt", "a")
    provide(tmp_path / "in" / "target", ["a.txt"], [Remote("http://nowhere/x", tmp_path / "evil.zip", "top")], silent)
    assert not list(tmp_path.rglob("evil.txt"))
    assert not list(tmp_path.rglob("c.txt"))


@pytest.mark.parametrize(
    "path, reason",
    [("missing.zip", "404"), ("short.zip", "it broke off after 40 of 100 bytes"), ("silent.zip", "timed out")],
)
def test_a_failed_download_says_which_file_to_put_where(tmp_path, server, monkeypatch, path, reason):
    monkeypatch.setattr(files, "TIMEOUT", 0.3)
    archive = tmp_path / "set" / path
    with pytest.raises(DataError) as caught:
        provide(tmp_path / "set" / "raw", ["a.csv", "b.csv"], [Remote(f"{server}/{path}", archive)], silent)
    message = str(caught.value)
    assert f"a.csv, b.csv in {tmp_path / 'set' / 'raw'} are missing" in message
    assert f"{server}/{path} cannot be fetched" in message
    assert reason in message
    assert f"put it at {archive}" in message
    assert not list(tmp_path.rglob("*.part"))
    assert not archive.exists()


def test_a_download_that_is_no_archive(tmp_path, server):
    archive = tmp_path / "whole.zip"
    with pytest.raises(DataError, match=r"whole\.zip is no complete zip archive .*Delete it and run again"):
        provide(tmp_path, ["a.csv"], [Remote(f"{server}/whole.zip", archive)], silent)


def test_an_archive_without_the_file(tmp_path):
    zipped(tmp_path, tmp_path / "empty.zip", "")
    with pytest.raises(DataError, match=r"a\.csv in .* is missing, and not in http://nowhere/x either"):
        provide(tmp_path, ["a.csv"], [Remote("http://nowhere/x", tmp_path / "empty.zip")], silent)


def test_zinc_is_unpacked_from_the_official_archive(tmp_path, monkeypatch):
    write_zinc(tmp_path / "far")
    raw = tmp_path / "far" / "ZINC" / "raw"
    zipped(raw, tmp_path / "molecules.zip", "molecules/")
    monkeypatch.setattr(ZINC, "url", (tmp_path / "molecules.zip").as_uri())
    monkeypatch.setattr(ZINC, "split_url", f"{raw.as_uri()}/{{}}.index")
    assert len(DATASETS["zinc"].load(tmp_path / "near", check_sizes=False)) == 13


def test_superpixels_are_unpacked_from_the_official_archive(tmp_path, monkeypatch):
    write_superpixels(tmp_path / "far", "MNIST")
    zipped(tmp_path / "far" / "MNIST" / "raw", tmp_path / "MNIST_v2.zip", "")
    monkeypatch.setitem(GNNBenchmarkDataset.urls, "MNIST", (tmp_path / "MNIST_v2.zip").as_uri())
    assert len(DATASETS["mnist"].load(tmp_path / "near", check_sizes=False)) == 13


def test_ogb_is_unpacked_from_an_archive_put_there_by_hand(tmp_path, no_network):
    pytest.importorskip("ogb")
    folder = write_ogb(tmp_path / "far", "ogbg-molhiv")
    (tmp_path / "near").mkdir()
    zipped(folder, tmp_path / "near" / "hiv.zip", "hiv/")
    assert len(DATASETS["molhiv"].load(tmp_path / "near", check_sizes=False)) == 13


@pytest.mark.parametrize(
    "name, expected",
    [
        (
            "zinc",
            r"train\.pickle, val\.pickle, .* in .*ZINC/raw are missing.*put it at .*ZINC/molecules\.zip "
            r"\(likewise http\S+train\.index at \S+ZINC/raw/train\.index, .*val\.index, .*test\.index\), and run again",
        ),
        ("mnist", r"MNIST_v2\.pt in .*MNIST/raw is missing.*put it at .*MNIST/raw/MNIST_v2\.zip"),
        ("molpcba", r"raw/edge\.csv\.gz, .* and \d more in .*ogbg_molpcba are missing.*put it at .*pcba\.zip"),
    ],
)
def test_without_a_network_one_message_says_it_all(tmp_path, no_network, name, expected):
    if name == "molpcba":
        pytest.importorskip("ogb")
    with pytest.raises(DataError, match=expected):
        DATASETS[name].load(tmp_path / "nix")
    assert not (tmp_path / "nix").exists()


def test_one_missing_file_is_named(tmp_path, no_network):
    pytest.importorskip("ogb")
    folder = write_ogb(tmp_path, "ogbg-molhiv")
    (folder / "RELEASE_v1.txt").unlink()  # OGB would ask on the keyboard
    with pytest.raises(DataError, match=r"^RELEASE_v1\.txt in .*ogbg_molhiv is missing"):
        DATASETS["molhiv"].load(tmp_path)
    write_zinc(tmp_path)
    (tmp_path / "ZINC" / "raw" / "val.index").unlink()  # PyG would delete the rest
    with pytest.raises(DataError, match=r"^val\.index in .*raw is missing.*put it at .*val\.index"):
        DATASETS["zinc"].load(tmp_path)
    assert (tmp_path / "ZINC" / "raw" / "train.pickle").exists()


@pytest.mark.parametrize(
    "name, file",
    [
        ("zinc", "ZINC/raw/val.pickle"),
        ("mnist", "MNIST/raw/MNIST_v2.pt"),
        ("molhiv", "ogbg_molhiv/raw/edge.csv.gz"),
        ("molhiv", "ogbg_molhiv/split/scaffold/valid.csv.gz"),
    ],
)
def test_a_half_finished_file_is_named(tmp_path, no_network, name, file):
    if name == "molhiv":
        pytest.importorskip("ogb")
        write_ogb(tmp_path, "ogbg-molhiv")
    elif name == "zinc":
        write_zinc(tmp_path)
    else:
        write_superpixels(tmp_path, "MNIST")
    path = tmp_path / file
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) * 2 // 3])
    with pytest.raises(DataError, match=rf"{path.name} is cut short or damaged; replace it by a complete copy"):
        DATASETS[name].load(tmp_path, check_sizes=False)


def test_a_damaged_processed_folder_is_named(tmp_path, no_network):
    write_zinc(tmp_path)
    DATASETS["zinc"].load(tmp_path, check_sizes=False)
    processed = next(tmp_path.rglob("val.pt"))
    processed.write_bytes(processed.read_bytes()[:100])
    with pytest.raises(DataError, match=r"subset/processed is left from a run that was interrupted; delete it"):
        DATASETS["zinc"].load(tmp_path, check_sizes=False)


def test_whole_files_are_not_called_damaged(tmp_path):
    write_zinc(tmp_path)
    write_superpixels(tmp_path, "MNIST")
    write_ogb(tmp_path, "ogbg-ppa")
    names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(names) > 10
    assert damaged(tmp_path, names) == []


def test_ogb_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ogb.graphproppred", None)
    with pytest.raises(DataError, match=r"molhiv is read by the package ogb, .* pip install 'phcgnn\[ogb\]'"):
        DATASETS["molhiv"].load(tmp_path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_place_where_the_official_loader_cannot_write_is_not_called_damaged(tmp_path, number):
    cache = tmp_path / "processed"
    cache.mkdir()
    with (
        pytest.raises(
            DataError, match=r"processed/data\.pt cannot be written \(.*copy the folder .* point --root there"
        ),
        official_reader(tmp_path, [], cache),
    ):
        raise OSError(number, os.strerror(number), str(cache / "data.pt"))
    with pytest.raises(DataError, match=r"processed cannot be written"), official_reader(tmp_path, [], cache):
        raise OSError(number, os.strerror(number))
