"""RDKit without its chatter, and its complaint about a SMILES as text that can be shown to a chemist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["MAX_SMILES", "chemistry_problems", "quiet_rdkit", "read_smiles", "shorten", "why_unreadable"]

MAX_SMILES = 20_000
"""The most characters that are tried as one SMILES. Thousands of small rings take RDKit a time that grows faster than
their number: 20,000 characters of them some seconds, 100,000 many minutes, for one row."""


@contextmanager
def quiet_rdkit() -> Iterator[None]:
    """Hold RDKit's log back while the block runs, and leave it as it was.

    >>> from rdkit import Chem
    >>> with quiet_rdkit():
    ...     Chem.MolFromSmiles("C(") is None
    True
    """
    from rdkit import rdBase

    block = rdBase.BlockLogs()
    try:
        yield
    finally:
        del block


def read_smiles(smiles: str) -> Any:
    """Parse and sanitise a SMILES: RDKit's molecule, or None where it is not one.

    ``""`` is a molecule of no atoms. Call it inside :func:`quiet_rdkit`.
    """
    from rdkit import Chem

    if len(smiles) > MAX_SMILES:
        return None
    try:
        return Chem.MolFromSmiles(smiles)
    except (RuntimeError, UnicodeEncodeError, ValueError):  # a check inside RDKit that failed; half a surrogate pair
        return None


def why_unreadable(smiles: str) -> str:
    """Return the reason for which :func:`read_smiles` gave None.

    >>> why_unreadable("CN(C)(C)(C)C")
    'Explicit valence for atom # 1 N, 5, is greater than permitted'
    >>> why_unreadable("C(")
    'not a SMILES that RDKit can read'
    """
    from rdkit import Chem

    if len(smiles) > MAX_SMILES:
        return f"{len(smiles):,} characters are more than the {MAX_SMILES:,} tried as one SMILES"
    try:
        with quiet_rdkit():
            found = chemistry_problems(Chem.MolFromSmiles(smiles, sanitize=False))
    except (RuntimeError, UnicodeEncodeError, ValueError):  # as above
        found = ""
    return found or "not a SMILES that RDKit can read"


def chemistry_problems(molecule: Any) -> str:
    """Return what keeps RDKit from sanitising a molecule, or nothing where it cannot tell.

    >>> from rdkit import Chem
    >>> chemistry_problems(Chem.MolFromSmiles("CF(C)", sanitize=False))
    'Explicit valence for atom # 1 F, 2, is greater than permitted'
    >>> chemistry_problems(None)
    ''
    """
    from rdkit import Chem

    if molecule is None:
        return ""
    try:
        return "; ".join(problem.Message() for problem in Chem.DetectChemistryProblems(molecule))
    except RuntimeError:  # [CH99999]: it stumbles over its own check
        return ""


def shorten(value: object, width: int = 60) -> str:
    """Return a value as text of at most ``width`` characters, or of the few that say how long it is, for a message.

    >>> shorten("C" * 100, 12)
    'CCCC…(100 characters)'
    """
    text = str(value)
    if len(text) <= width:
        return text
    length = f"…({len(text):,} characters)"
    return text[: max(width - len(length), 4)] + length
