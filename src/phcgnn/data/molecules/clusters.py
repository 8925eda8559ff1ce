"""Clusters of molecules that look alike to a Morgan fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles
from phcgnn.errors import require_positive

__all__ = ["BUTINA_LIMIT", "butina_clusters", "kmeans_clusters", "morgan_fingerprints"]

BUTINA_LIMIT = 30_000
"""The most molecules that are compared pair by pair."""

Clusters = npt.NDArray[np.int64]


def morgan_fingerprints(smiles: Sequence[str], *, radius: int = 2, bits: int = 1024) -> list[Any]:
    """Return RDKit's Morgan fingerprint of each molecule, None for a SMILES that cannot be read."""
    from rdkit.Chem import rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=bits)
    with quiet_rdkit():
        molecules = (read_smiles(text) for text in smiles)
        return [None if molecule is None else generator.GetFingerprint(molecule) for molecule in molecules]


def butina_clusters(smiles: Sequence[str], *, cutoff: float = 0.4) -> Clusters:
    """Return the Butina cluster of each molecule: a centre and what lies within a Tanimoto distance of it.

    Molecules with most neighbours become centres first. Every pair is compared: the time grows as the square of the
    number of molecules, so more than 30,000 are refused. A SMILES that cannot be read is a cluster of its own.

    Args:
        smiles: One text a molecule.
        cutoff: The largest distance to a centre, in (0, 1).

    >>> butina_clusters(["CCCCCCO", "c1ccccc1", "CCCCCCCO"]).tolist()
    [0, 1, 0]
    """
    from rdkit import DataStructs

    if not 0 < cutoff < 1:
        raise ValueError(f"butina_clusters: `cutoff` must be a distance in (0, 1), got {cutoff}.")
    if len(smiles) > BUTINA_LIMIT:
        raise ValueError(
            f"split 'butina': {len(smiles):,} molecules make {len(smiles) ** 2 / 2:.0e} pairs to compare; the limit is "
            f"{BUTINA_LIMIT:,} molecules. Use 'kmeans' or 'scaffold'."
        )
    prints = morgan_fingerprints(smiles)
    places = [place for place, one in enumerate(prints) if one is not None]
    readable = [prints[place] for place in places]
    neighbours = []
    for one in readable:
        similar = np.asarray(DataStructs.BulkTanimotoSimilarity(one, readable))
        neighbours.append(np.flatnonzero(1 - similar <= cutoff).astype(np.int32))
    inside = np.full(len(readable), -1, dtype=np.int64)
    count = 0
    for centre in sorted(range(len(readable)), key=lambda i: (len(neighbours[i]), i), reverse=True):
        if inside[centre] >= 0:
            continue
        free = neighbours[centre][inside[neighbours[centre]] < 0]
        inside[free] = count
        count += 1
    clusters = np.full(len(smiles), -1, dtype=np.int64)
    clusters[places] = inside
    return _numbered(clusters)


def kmeans_clusters(smiles: Sequence[str], *, clusters: int | None = None, seed: int = 0, rounds: int = 25) -> Clusters:
    """Return the k-means cluster of each molecule's fingerprint.

    The time grows as molecules times clusters. A SMILES that cannot be read is a cluster of its own.

    Args:
        smiles: One text a molecule.
        clusters: How many (default: the square root of the number of molecules, at most 256).
        seed: Of the choice of the first centres.
        rounds: The most rounds; it stops when no molecule moves.

    >>> found = kmeans_clusters(["CCCCCO", "CCCCCCO", "c1ccccc1C", "c1ccccc1CC"], clusters=2)
    >>> bool(found[0] == found[1]), bool(found[2] == found[3])
    (True, True)
    """
    import torch
    from rdkit import DataStructs

    if clusters is not None:
        require_positive("kmeans_clusters", clusters=clusters)
    prints = morgan_fingerprints(smiles)
    places = [place for place, one in enumerate(prints) if one is not None]
    result = np.full(len(smiles), -1, dtype=np.int64)
    if not places:
        return _numbered(result)
    dense = np.empty((len(places), 1024), dtype=np.uint8)
    for row, place in enumerate(places):
        DataStructs.ConvertToNumpyArray(prints[place], dense[row])
    points = torch.from_numpy(dense)
    count = min(round(len(places) ** 0.5), 256) if clusters is None else clusters
    centres = _spread(points, count, np.random.RandomState(seed))
    count = len(centres)
    label = torch.full((len(points),), -1)
    for _ in range(rounds):
        fresh = torch.cat([_nearest(block, centres) for block in points.split(4096)])
        if torch.equal(fresh, label):
            break
        label = fresh
        sums = torch.zeros_like(centres)
        for block, part in zip(points.split(4096), label.split(4096), strict=True):
            sums.index_add_(0, part, block.double())
        sizes = torch.bincount(label, minlength=count)
        filled = sizes > 0
        centres[filled] = sums[filled] / sizes[filled, None]
    result[places] = label.numpy()
    return _numbered(result)


def _spread(points: Any, count: int, random: np.random.RandomState) -> Any:
    """Choose first centres among at most 4,096 points as k-means++ does: far from those that are chosen already."""
    sample = points[random.permutation(len(points))[:4096]].double()
    chosen = [0]
    nearest = (sample - sample[0]).square().sum(1)
    while len(chosen) < count and float(nearest.max()) > 0:
        reach = nearest.cumsum(0)
        chosen.append(int((reach > random.random_sample() * reach[-1]).int().argmax()))
        nearest = nearest.minimum((sample - sample[chosen[-1]]).square().sum(1))
    return sample[chosen]


def _nearest(block: Any, centres: Any) -> Any:
    distance = centres.square().sum(1) - 2 * block.double() @ centres.T
    return distance.argmin(1)


def _numbered(clusters: Clusters) -> Clusters:
    """Number clusters in the order in which they first appear, and give each -1 a number of its own."""
    numbers: dict[tuple[bool, int], int] = {}
    keys = ((cluster < 0, place if cluster < 0 else cluster) for place, cluster in enumerate(clusters.tolist()))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
