"""The molecules that a model gets wrong: by scaffold, and the worst of them drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles
from phcgnn.report.predictions import Predictions

__all__ = ["ScaffoldErrors", "can_read_molecules", "draw_molecule", "scaffold_errors", "worst"]

READABLE = {"#000000": "currentColor", "#0000FF": "#4a86e8", "#FF0000": "#e5484d", "#33CCCC": "#2fa6a6"}
"""Colours of RDKit's that cannot be read on one of the page's two grounds, and what takes their place."""


@dataclass(frozen=True)
class ScaffoldErrors:
    """How wrong the predictions are on the molecules of a scaffold.

    Attributes:
        scaffold: As SMILES; empty for molecules without a ring, None for those that RDKit cannot read.
        count: How many molecules of the test set have it.
        mean: Of their errors.
        worst: The largest.
    """

    scaffold: str | None
    count: int
    mean: float
    worst: float


def can_read_molecules() -> bool:
    """Whether RDKit is installed."""
    try:
        import rdkit  # noqa: F401
    except ImportError:
        return False
    return True


def scaffold_errors(found: Predictions) -> list[ScaffoldErrors]:
    """Return the Bemis-Murcko scaffolds of a test set, the most frequent first."""
    assert found.smiles is not None
    errors = found.errors
    groups: dict[str | None, list[float]] = {}
    for scaffold, error in zip(_scaffolds(found.smiles), errors.tolist(), strict=True):
        if error == error:
            groups.setdefault(scaffold, []).append(error)
    lines = [ScaffoldErrors(key, len(group), float(np.mean(group)), max(group)) for key, group in groups.items()]
    return sorted(lines, key=lambda line: (-line.count, -line.mean, line.scaffold or ""))


def worst(found: Predictions, count: int) -> list[int]:
    """Return the rows with the largest errors, the worst first."""
    errors = found.errors
    order = np.argsort(-np.where(np.isnan(errors), -np.inf, errors), kind="stable")
    return [int(row) for row in order[:count] if not np.isnan(errors[row])]


def draw_molecule(smiles: str, width: int = 220, height: int = 150) -> str | None:
    """Draw a molecule as an SVG that takes the page's colours; None if RDKit cannot read it.

    >>> draw_molecule("CCO").startswith('<svg viewBox="0 0 220 150"'), draw_molecule("no molecule")
    (True, None)
    """
    from rdkit.Chem.Draw import rdMolDraw2D

    with quiet_rdkit():
        molecule = read_smiles(smiles)
        if molecule is None or not molecule.GetNumAtoms():
            return None
        drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
        options: Any = drawer.drawOptions()
        options.clearBackground = False
        options.padding = 0.06
        rdMolDraw2D.PrepareAndDrawMolecule(drawer, molecule)
        drawer.FinishDrawing()
        text = str(drawer.GetDrawingText())
    inner = re.sub(r"<!--.*?-->", "", text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")])
    for theirs, ours in READABLE.items():
        inner = inner.replace(theirs, ours)
    return f'<svg viewBox="0 0 {width} {height}" aria-hidden="true">{inner.strip()}</svg>'


def _scaffolds(smiles: Sequence[str]) -> list[str | None]:
    from rdkit.Chem.Scaffolds import MurckoScaffold

    found: list[str | None] = []
    with quiet_rdkit():
        for text in smiles:
            molecule = read_smiles(text)
            found.append(
                None if molecule is None else MurckoScaffold.MurckoScaffoldSmiles(mol=molecule, includeChirality=False)
            )
    return found
