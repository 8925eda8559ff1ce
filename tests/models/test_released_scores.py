"""The authors' released weights give their published scores on the rebuilt data."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from phcgnn.models import released

pytestmark = pytest.mark.data


def predict(model, graphs, size=512):
    """Predictions for a split: tensors laid end to end, and the sizes of its graphs."""
    x, edge_index, edge_attr, nodes, edges = graphs
    out, node, edge = [], 0, 0
    with torch.no_grad():
        for start in range(0, len(nodes), size):
            v, e = nodes[start : start + size], edges[start : start + size]
            ptr = torch.cat([torch.zeros(1, dtype=torch.long), v.cumsum(0)])
            shift = torch.repeat_interleave(ptr[:-1], e)
            part = slice(edge, edge + int(e.sum()))
            out.append(model(x[node : node + int(v.sum())], edge_index[:, part] + shift, edge_attr[part], ptr))
            node, edge = node + int(v.sum()), part.stop
    return torch.cat(out)[:, 0]


def directed(edge_index, edge_attr, edges):
    """Both directions of each bond."""
    both = torch.stack([edge_index, edge_index.flip(0)], dim=2).flatten(1)
    return both, edge_attr.repeat_interleave(2, dim=0), 2 * edges


def select(graphs, chosen):
    x, edge_index, edge_attr, nodes, edges = graphs
    keep = torch.zeros(len(nodes), dtype=torch.bool)
    keep[chosen] = True
    v, e = torch.repeat_interleave(keep, nodes), torch.repeat_interleave(keep, edges)
    return x[v], edge_index[:, e], edge_attr[e], nodes[keep], edges[keep]


def roc_auc(score, label):
    _, inverse, count = torch.unique(score, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0) - (count - 1) / 2)[inverse]
    positive = label == 1
    p, n = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * n))


@pytest.mark.parametrize("split, expected", [("test", 0.18955), ("valid", 0.20554)])
def test_zinc(shared_data, split, expected):
    z = np.load(shared_data / "ZINC" / "zinc12k.npz")
    nodes, edges = (torch.from_numpy(z[k].astype(np.int64)) for k in ("num_atoms", "num_bonds"))
    x = torch.from_numpy(z["atom"].astype(np.int64))[:, None]
    bonds = directed(torch.from_numpy(z["bond"].astype(np.int64)).T, torch.from_numpy(z["bond_type"]).long(), edges)
    chosen = torch.from_numpy(z["split"] == {"valid": 1, "test": 2}[split])
    graphs = select((x, bonds[0], bonds[1], nodes, bonds[2]), chosen)
    model = released.load(shared_data / "reference_weights" / "zinc_phc5_100k.safetensors", dtype=torch.float64)
    error = predict(model, graphs) - torch.from_numpy(z["y"])[chosen]
    assert len(error) == 1000
    assert float(error.abs().mean()) == pytest.approx(expected, abs=2e-4)


@pytest.fixture(scope="module")
def molhiv(shared_data):
    raw = shared_data / "ogbg_molhiv" / "raw"

    def read(name):
        with gzip.open(raw / f"{name}.csv.gz", "rt") as file:
            return torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.int64, ndmin=2))

    nodes, edges = read("num-node-list")[:, 0], read("num-edge-list")[:, 0]
    bonds = directed(read("edge").T, read("edge-feat"), edges)
    return (read("node-feat"), bonds[0], bonds[1], nodes, bonds[2]), read("graph-label")[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("split, expected", [("test", 0.79598), ("valid", 0.83002)])
def test_molhiv(shared_data, molhiv, split, expected):
    graphs, labels = molhiv
    with gzip.open(shared_data / "ogbg_molhiv" / "split" / "scaffold" / f"{split}.csv.gz", "rt") as file:
        chosen = torch.from_numpy(np.loadtxt(file, dtype=np.int64))
    model = released.load(shared_data / "reference_weights" / "molhiv_phc4.safetensors", dtype=torch.float64)
    score = predict(model, select(graphs, chosen))
    assert bool((chosen.diff() > 0).all())
    assert roc_auc(score, labels[chosen]) == pytest.approx(expected, abs=3e-4)
