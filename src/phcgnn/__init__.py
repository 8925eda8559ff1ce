"""Parameterized hypercomplex graph neural networks.

The network is :class:`phcgnn.PHCGNN`, its architecture as a value :class:`phcgnn.PHCGNNConfig`; both are imported when
they are first asked for. The layers live in :mod:`phcgnn.nn`, the multiplication tables in :mod:`phcgnn.algebra`, the
pure functions under both in :mod:`phcgnn.functional`, and the checkers for people who write such layers in
:mod:`phcgnn.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phcgnn._version import __version__

if TYPE_CHECKING:
    from phcgnn.models import PHCGNN, PHCGNNConfig

__all__ = ["PHCGNN", "PHCGNNConfig", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("PHCGNN", "PHCGNNConfig"):
        import phcgnn.models

        return getattr(phcgnn.models, name)
    raise AttributeError(f"module 'phcgnn' has no attribute '{name}'")
