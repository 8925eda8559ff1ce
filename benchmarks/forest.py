"""A random forest on Morgan fingerprints, on the very split of ``phcgnn train``: what a property model has to beat.

    python benchmarks/forest.py --data-path esol.csv --smiles-column smiles --target-columns solubility

Prints one JSON line: scores of the forest, and of a predictor that always answers the training mean. Fingerprints have
radius 2 and 2,048 bits; the forest has 500 trees and scikit-learn's defaults otherwise, one forest a target.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import numpy.typing as npt
import torch
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from phcgnn.data.sources import DataSettings, open_data
from phcgnn.training.metrics import score

Matrix = npt.NDArray[np.float32]


def fingerprints(smiles: list[str]) -> Matrix:
    """Return the ``(N, 2048)`` Morgan fingerprints."""
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    return np.stack([generator.GetFingerprintAsNumPy(Chem.MolFromSmiles(text)) for text in smiles]).astype(np.float32)


def answer(x: Matrix, y: Matrix, x_new: Matrix, task: str, seed: int, trees: int) -> tuple[Matrix, Matrix]:
    """Return the forest's and the mean's answers for ``x_new``, a column a target; gaps in ``y`` are left out."""
    forest, mean = np.zeros((2, len(x_new), y.shape[1]), np.float32)
    for target in range(y.shape[1]):
        known = ~np.isnan(y[:, target])
        labels = y[known, target]
        mean[:, target] = labels.mean()
        if task == "regression":
            model = RandomForestRegressor(trees, n_jobs=-1, random_state=seed).fit(x[known], labels)
            forest[:, target] = model.predict(x_new)
        elif len(np.unique(labels)) < 2:
            forest[:, target] = labels.mean()
        else:
            model = RandomForestClassifier(trees, n_jobs=-1, random_state=seed).fit(x[known], labels > 0.5)
            forest[:, target] = model.predict_proba(x_new)[:, 1]
    return forest, mean


def main() -> None:
    """Fit, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-path", required=True)
    parser.add_argument("--smiles-column")
    parser.add_argument("--target-columns", required=True, help="separated by commas")
    parser.add_argument("--task", default="regression", choices=("regression", "classification"))
    parser.add_argument("--split", default="scaffold")
    parser.add_argument("--metric", default=None, help="(default: rmse or roc_auc)")
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    settings = DataSettings(
        path=given.data_path,
        smiles_column=given.smiles_column,
        target_columns=tuple(given.target_columns.split(",")),
        task=given.task,
        split=given.split,
        on_invalid="skip",
    )
    opened = open_data(settings)
    store = opened.store
    assert store.smiles is not None
    assert store.y is not None
    start = time.perf_counter()
    x, y = fingerprints(list(store.smiles)), store.y.float().numpy()
    train, test = store.splits["train"].numpy(), store.splits["test"].numpy()
    forest, mean = answer(x[train], y[train], x[test], given.task, given.seed, given.trees)
    metric = given.metric or ("rmse" if given.task == "regression" else "roc_auc")
    truth = torch.from_numpy(y[test])
    answers = {"forest": forest, "mean": mean}
    scores = {name: score(metric, torch.from_numpy(values), truth).mean for name, values in answers.items()}
    seconds = time.perf_counter() - start
    sizes = {name: len(rows) for name, rows in store.splits.items()}
    print(json.dumps({"data": store.metadata.name, "metric": metric, **scores, "splits": sizes, "seconds": seconds}))


if __name__ == "__main__":
    main()
