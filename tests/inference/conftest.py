"""Model folders of tiny networks with random weights, and tables to predict for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from phcgnn import PHCGNN
from phcgnn.models import save_model

pytest.importorskip("rdkit")

OGB = {"node_features": (119, 4, 12, 12, 10, 6, 6, 2, 2), "edge_features": (5, 6, 2)}
TASKS = {
    "regression": {"targets": ["logS", "logP"], "normalisation": {"mean": [-3.0, 2.0], "deviation": [2.0, 0.5]}},
    "classification": {"targets": ["active"]},
    "multiclass": {"targets": ["kind"], "classes": ["acid", "base", "other"]},
}
SMILES = ["CCO", "c1ccccc1O", "CC(=O)[O-].[Na+]", "C1CC", "O", "N#Cc1ccccc1", "", "CN(C)(C)(C)C", "[Fe]", "CCCCCC"]
BAD = {3: "not a SMILES", 6: "no SMILES", 7: "Explicit valence"}
"""Of these rows, counted from 0, those that cannot be predicted."""


def make_model(folder: Path, task: str = "regression", *, seed: int = 0, **metadata) -> Path:
    """A network whose predictions differ from molecule to molecule, normalised over a few of them."""
    torch.manual_seed(seed)
    about = {"task": task, "featuriser": "ogb/1", "classes": None, "normalisation": None, **TASKS[task], **metadata}
    targets = len(about["classes"] or about["targets"])
    model = PHCGNN(**OGB, targets=targets, n=2, width=8, layers=1, aggregation="softmax", downstream=(6,))
    with torch.no_grad():
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.1 * torch.rand_like(buffer))
    return save_model(model.eval(), folder, about)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> dict[str, Path]:
    """A folder a task, and ``ensemble``: three runs."""
    parent = tmp_path_factory.mktemp("models")
    found = {task: make_model(parent / task, task) for task in TASKS}
    for seed in range(3):
        make_model(parent / "ensemble" / f"seed-{seed}", seed=seed)
    return found | {"ensemble": parent / "ensemble"}


def many(count: int) -> list[str]:
    """So many molecules, no two alike."""
    ends = ["O", "N", "F", "Cl", "Br", "C#N", "C(=O)O", "c1ccccc1", "C1CC1", "S"]
    return ["C" * (1 + i // 10 % 20) + "N" * (i // 200 % 2) + "C" * (i // 400) + ends[i % 10] for i in range(count)]


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "in.csv"
    rows = [f"{i},{smiles},note {i}" for i, smiles in enumerate(SMILES)]
    path.write_text("\n".join(["id,smiles,note", *rows]) + "\n")
    return path
