from __future__ import annotations

import numpy as np
import pytest

from phcgnn.data.molecules import clusters
from phcgnn.data.molecules.clusters import butina_clusters, kmeans_clusters, morgan_fingerprints

pytest.importorskip("rdkit")

SMILES = [
    f"{'C' * (1 + i % 6)}{ring}{'O' * (i % 2)}" for i in range(6) for ring in ("c1ccccc1", "N1CCCCC1", "C1CC1C", "S")
]


@pytest.mark.parametrize("cutoff", [0.2, 0.4, 0.7])
def test_butina_equals_rdkits(cutoff):
    from rdkit import DataStructs
    from rdkit.ML.Cluster import Butina

    prints = morgan_fingerprints(SMILES)
    distances = [1 - DataStructs.TanimotoSimilarity(prints[i], prints[j]) for i in range(len(prints)) for j in range(i)]
    expected = {frozenset(cluster) for cluster in Butina.ClusterData(distances, len(prints), cutoff, isDistData=True)}
    found = butina_clusters(SMILES, cutoff=cutoff)
    assert {frozenset(np.flatnonzero(found == c).tolist()) for c in np.unique(found)} == expected
    assert 1 < len(expected) < len(SMILES)


def test_butina_refuses_what_would_take_days(monkeypatch):
    monkeypatch.setattr(clusters, "BUTINA_LIMIT", 3)
    with pytest.raises(ValueError, match=r"4 molecules make 8e\+00 pairs.*limit is 3.*'kmeans' or 'scaffold'"):
        butina_clusters(["C"] * 4)
    with pytest.raises(ValueError, match=r"`cutoff` must be a distance in \(0, 1\), got 1"):
        butina_clusters(["C"], cutoff=1)


@pytest.mark.parametrize("cluster", [butina_clusters, kmeans_clusters])
def test_unreadable_smiles_are_clusters_of_their_own(cluster):
    assert cluster(["C(", "CCCO", "X", "CCCO"]).tolist() == [0, 1, 2, 1]
    assert cluster(["C(", "X"]).tolist() == [0, 1]
    assert cluster([]).tolist() == []


def test_kmeans_ends_where_each_molecule_is_nearest_to_the_mean_of_its_cluster():
    from rdkit import DataStructs

    found = kmeans_clusters(SMILES, clusters=4, seed=1)
    points = np.stack(
        [DataStructs.ConvertToNumpyArray(p, a := np.zeros(1024)) or a for p in morgan_fingerprints(SMILES)]
    )
    means = np.stack([points[found == c].mean(0) for c in range(found.max() + 1)])
    distance = ((points[:, None] - means[None]) ** 2).sum(2)
    assert len(means) == 4
    assert (distance[np.arange(len(points)), found] <= distance.min(1) + 1e-9).all()


@pytest.mark.parametrize("count, expected", [(1, 1), (None, 5), (1000, 24)])
def test_kmeans_makes_as_many_as_asked_but_no_more_than_there_are_molecules(count, expected):
    found = kmeans_clusters(SMILES, clusters=count)
    assert found.max() + 1 <= expected
    assert found.max() + 1 >= min(expected, 3)
    with pytest.raises(ValueError, match="`clusters` must be at least 1, got 0"):
        kmeans_clusters(SMILES, clusters=0)
