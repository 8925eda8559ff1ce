"""Every adapter against the official loader, graph by graph: on small files, and on the real ones where they are."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.datasets import ZINC, GNNBenchmarkDataset

from phcgnn.data import GraphStore
from phcgnn.data.benchmarks import DATASETS
from phcgnn.data.benchmarks.ogb import _declared_safe, _read

from ..conftest import sort_edges
from .conftest import SIZES, write_ogb, write_superpixels, write_zinc

pytest.importorskip("ogb")

OGB = {"molhiv": "ogbg-molhiv", "molpcba": "ogbg-molpcba", "ppa": "ogbg-ppa"}


@contextlib.contextmanager
def quiet():
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def write(name: str, root: Path, **options) -> None:
    if name in OGB:
        write_ogb(root, OGB[name], **options)
    elif name.startswith("zinc"):
        write_zinc(root, **options)
    else:
        write_superpixels(root, name.upper(), **options)


def official(name: str, root: Path) -> dict[str, list[Data]]:
    """The official loader's graphs by split."""
    with quiet():
        if name in OGB:
            dataset, split = _read(OGB[name], root)
            return {part: [dataset[int(i)] for i in index] for part, index in split.items()}
        if name.startswith("zinc"):
            make = lambda split: ZINC(str(root / "ZINC"), subset=name == "zinc", split=split)  # noqa: E731
        else:
            make = lambda split: GNNBenchmarkDataset(str(root), name=name.upper(), split=split)  # noqa: E731
        return {split: list(make(split)) for split in ("train", "val", "test")}


def assert_agrees(store: GraphStore, expected: dict[str, list[Data]]) -> None:
    assert list(store.splits) == ["train", "val", "test"]
    assert sum(map(len, expected.values())) == len(store)
    metadata = store.metadata
    for split, graphs in expected.items():
        for i, data in zip(store.splits[split].tolist(), graphs, strict=True):
            found = store[i]
            features = {"x": data.x, "edge_attr": data.edge_attr}
            if data.pos is not None:
                features["x"] = torch.cat([data.x, data.pos], 1)
            if data.edge_attr is None:
                features["edge_attr"] = torch.zeros(data.num_edges, 0)
            wanted = sort_fast(data.edge_index, features["edge_attr"])
            assert torch.equal(found.edge_index, wanted[0])
            if metadata.edge_features is not None:
                assert torch.equal(found.edge_attr, wanted[1].view(found.edge_attr.shape))
            if metadata.node_features is None:
                assert found.num_nodes == data.num_nodes
                assert "x" not in found
            else:
                assert torch.equal(found.x, features["x"])
            assert torch.equal(found.y.flatten().float().nan_to_num(7), data.y.flatten().float().nan_to_num(7))


def sort_fast(edge_index, edge_attr):
    order = edge_index[1].sort(stable=True).indices
    return edge_index[:, order], edge_attr[order]


def test_the_fast_sort_is_the_slow_one():
    data = Data(edge_index=torch.randint(0, 5, (2, 30)), edge_attr=torch.rand(30, 2))
    slow, fast = sort_edges(data), sort_fast(data.edge_index, data.edge_attr)
    assert torch.equal(slow.edge_index, fast[0])
    assert torch.equal(slow.edge_attr, fast[1])


@pytest.mark.parametrize("name", DATASETS)
def test_small_files_of_the_official_layout(name, tmp_path, no_network):
    if name == "nci":
        pytest.skip("nci is read from RDKit's own wheel")
    write(name, tmp_path)
    store = DATASETS[name].load(tmp_path, check_sizes=False)
    assert {split: len(index) for split, index in store.splits.items()} == SIZES
    assert_agrees(store, official(name, tmp_path))
    path = tmp_path / "a.phg"
    store.save(path)
    assert_agrees(GraphStore.load(path), official(name, tmp_path))
    with pytest.raises(ValueError, match=r"is not the published data set: train has 6 graphs, not .*check_sizes=False"):
        DATASETS[name].load(tmp_path)


def test_what_the_paper_says_of_each():
    sizes = {name: sum(DATASETS[name].sizes.values()) for name in DATASETS if name != "nci"}
    assert sizes == {
        "zinc": 12_000,
        "zinc-full": 249_456,
        "molhiv": 41_127,
        "molpcba": 437_929,
        "ppa": 158_100,
        "mnist": 70_000,
        "cifar10": 60_000,
    }
    facts = {name: DATASETS[name].metadata for name in sizes}
    assert facts["zinc"].node_features == (28,)
    assert facts["zinc"].edge_features == (4,)
    assert len(facts["molpcba"].targets) == 128
    assert (facts["ppa"].node_features, facts["ppa"].edge_features, facts["ppa"].num_classes) == (None, 7, 37)
    assert (facts["mnist"].node_features, facts["cifar10"].node_features, facts["mnist"].edge_features) == (3, 5, 1)
    metrics = {name: metadata.metric for name, metadata in facts.items()}
    assert metrics == {
        "zinc": "mae",
        "zinc-full": "mae",
        "molhiv": "roc_auc",
        "molpcba": "average_precision",
        "ppa": "accuracy",
        "mnist": "accuracy",
        "cifar10": "accuracy",
    }


def test_categories_are_those_of_ogb():
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    metadata = DATASETS["molhiv"].metadata
    atoms = get_atom_feature_dims()
    atoms[1] = min(atoms[1], 4)  # later versions of OGB tell a fifth chirality, which its data sets do not hold
    assert list(metadata.node_features) == atoms
    assert list(metadata.edge_features) == get_bond_feature_dims()


def test_molpcba_keeps_gaps_names_and_smiles(tmp_path, no_network):
    write("molpcba", tmp_path)
    store = DATASETS["molpcba"].load(tmp_path, check_sizes=False)
    assert 0.4 < float(store.y.isnan().float().mean()) < 0.8
    assert store.metadata.targets == tuple(f"task-{i}" for i in range(128))
    assert list(store.smiles) == ["C,1", *("C" * i for i in range(1, 13))]


@pytest.fixture
def safe_globals():
    """The list of what torch loads, put back at the end."""
    kept = torch.serialization.get_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(kept)


@pytest.mark.parametrize("known", [[], [Data], [Data, GlobalStorage]], ids=["none", "as PyG does", "more"])
def test_ogb_leaves_torch_as_it_was(tmp_path, no_network, safe_globals, known):
    write("molhiv", tmp_path)
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(known)
    load, safe = torch.load, set(torch.serialization.get_safe_globals())
    DATASETS["molhiv"].load(tmp_path, check_sizes=False)
    assert torch.load is load
    assert set(torch.serialization.get_safe_globals()) == safe


def test_threads_do_not_take_each_others_safe_classes_away(safe_globals):
    torch.serialization.clear_safe_globals()
    seen = []

    def declare(number):
        with _declared_safe(Data, GlobalStorage):
            time.sleep(0.002)
            seen.append({Data, GlobalStorage} <= set(torch.serialization.get_safe_globals()))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(declare, range(12)))
    assert seen == [True] * 12
    assert torch.serialization.get_safe_globals() == []


def test_progress_is_told(tmp_path, no_network):
    write("zinc", tmp_path)
    told = []
    DATASETS["zinc"].load(tmp_path, check_sizes=False, progress=lambda *step: told.append(step))
    assert told == [("reading train", 0, 3), ("reading val", 1, 3), ("reading test", 2, 3), ("packing",)]


@pytest.fixture(scope="session")
def materialized(shared_data, tmp_path_factory):
    spec = importlib.util.spec_from_file_location("materialize", shared_data / "materialize.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    root = tmp_path_factory.mktemp("raw")

    def make(name):
        module.SETS[name](root)
        return root

    return make


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["zinc", "molhiv", "mnist", "cifar10"])
def test_the_real_files(name, materialized, tmp_path, no_network):
    root = materialized(name)
    store = DATASETS[name].load(root)
    store.save(tmp_path / "a.phg")
    if name == "molhiv":
        assert store.nbytes < 60e6
        assert store.metadata.targets == ("HIV_active",)
        assert len(store.smiles) == len(store)
    again = GraphStore.load(tmp_path / "a.phg")
    if name in ("mnist", "cifar10"):
        assert_agrees_end_to_end(again, root / name.upper())
    else:
        assert_agrees(again, official(name, root))


def assert_agrees_end_to_end(store: GraphStore, folder: Path) -> None:
    """Every graph of superpixels against PyG's, a split at once: one by one, 60,000 take many minutes."""
    first = 0
    for split in ("train", "val", "test"):
        with quiet():
            dataset = GNNBenchmarkDataset(str(folder.parent), name=folder.name, split=split)
        data, slices, last = dataset._data, dataset.slices, first + len(dataset)
        assert torch.equal(store.splits[split], torch.arange(first, last))
        found = store[first:last]
        assert torch.equal(found.node_ptr, slices["x"])
        assert torch.equal(found.edge_ptr, slices["edge_index"])
        assert torch.equal(found.x, torch.cat([data.x, data.pos], 1))
        assert torch.equal(found.y, data.y.long())
        graph = torch.repeat_interleave(slices["edge_index"].diff())
        order = torch.from_numpy(np.lexsort((data.edge_index[1].numpy(), graph.numpy())))  # keeps ties in order
        assert torch.equal(found.edge_index.long(), data.edge_index[:, order])
        assert torch.equal(found.edge_attr.flatten(), data.edge_attr.flatten()[order])
        first = last
    assert first == len(store)
