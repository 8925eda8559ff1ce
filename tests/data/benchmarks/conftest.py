"""Small data sets in the raw layouts of the official loaders."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

SIZES = {"train": 6, "val": 3, "test": 4}


def write_zinc(root: Path, sizes=SIZES, seed=0) -> None:
    generator = torch.Generator().manual_seed(seed)
    raw = root / "ZINC" / "raw"
    raw.mkdir(parents=True)
    for split, count in sizes.items():
        molecules = []
        for _ in range(count):
            nodes = int(torch.randint(1, 9, (), generator=generator))
            bonds = torch.randint(0, 4, (nodes, nodes), generator=generator).triu(1)
            molecules.append(
                {
                    "num_atom": nodes,
                    "atom_type": torch.randint(0, 28, (nodes,), generator=generator).to(torch.int8),
                    "bond_type": (bonds + bonds.T).to(torch.int8),
                    "logP_SA_cycle_normalized": torch.randn(1, generator=generator),
                }
            )
        (raw / f"{split}.pickle").write_bytes(pickle.dumps(molecules, protocol=4))
        (raw / f"{split}.index").write_text(",".join(map(str, range(count))) + "\n")


def write_superpixels(root: Path, name: str, sizes=SIZES, seed=0) -> None:
    generator = torch.Generator().manual_seed(seed)
    splits = []
    for count in sizes.values():
        graphs = []
        for _ in range(count):
            nodes, edges = (int(i) for i in torch.randint(1, 9, (2,), generator=generator))
            graphs.append(
                {
                    "x": torch.rand(nodes, 1 if name == "MNIST" else 3, generator=generator),
                    "pos": torch.rand(nodes, 2, generator=generator),
                    "edge_index": torch.randint(0, nodes, (2, edges), generator=generator),
                    "edge_attr": torch.rand(edges, generator=generator),
                    "y": torch.randint(0, 10, (1,), generator=generator),
                }
            )
        splits.append(graphs)
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    torch.save(splits, raw / f"{name}_v2.pt")


def write_csv(path: Path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join("" if value != value else str(value) for value in row) + "\n" for row in rows)


def write_ogb(root: Path, name: str, sizes=SIZES, seed=0) -> Path:
    """Undirected graphs, each edge once, as OGB's own archives hold them."""
    random = np.random.default_rng(seed)
    folder = root / name.replace("-", "_")
    count = sum(sizes.values())
    nodes, edges = random.integers(1, 9, count), random.integers(0, 12, count)
    nodes[1], edges[1], edges[2] = 1, 0, 0
    raw = folder / "raw"
    write_csv(raw / "num-node-list.csv.gz", nodes[:, None])
    write_csv(raw / "num-edge-list.csv.gz", edges[:, None])
    write_csv(
        raw / "edge.csv.gz", [random.integers(0, n, 2) for n, e in zip(nodes, edges, strict=True) for _ in range(e)]
    )
    if name == "ogbg-ppa":
        write_csv(raw / "edge-feat.csv.gz", random.random((edges.sum(), 7)).round(3))
        write_csv(raw / "graph-label.csv.gz", random.integers(0, 37, (count, 1)))
        split = "species"
    else:
        write_csv(raw / "node-feat.csv.gz", random.integers(0, (119, 4, 12, 12, 10, 6, 6, 2, 2), (nodes.sum(), 9)))
        write_csv(raw / "edge-feat.csv.gz", random.integers(0, (5, 6, 2), (edges.sum(), 3)))
        targets = 128 if name == "ogbg-molpcba" else 1
        labels = random.integers(0, 2, (count, targets)).astype(object)
        if targets > 1:
            labels[random.random(labels.shape) < 0.6] = float("nan")
        write_csv(raw / "graph-label.csv.gz", labels)
        header = [f"task-{i}" for i in range(targets)]
        smiles = [[*row, '"C,1"' if i == 0 else "C" * i, f"mol-{i}"] for i, row in enumerate(labels)]
        write_csv(folder / "mapping" / "mol.csv.gz", [[*header, "smiles", "mol_id"], *smiles])
        split = "scaffold"
    order = random.permutation(count)
    for part, index in zip(("train", "valid", "test"), np.split(order, np.cumsum([*sizes.values()])[:-1]), strict=True):
        write_csv(folder / "split" / split / f"{part}.csv.gz", index[:, None])
    (folder / "RELEASE_v1.txt").write_text("")
    return folder


@pytest.fixture
def no_network(monkeypatch):
    """Fail fast and the same everywhere."""

    def refuse(*_, **__):
        raise OSError("no network in tests")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
