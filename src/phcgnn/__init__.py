"""Parameterized hypercomplex graph neural networks.

The layers live in :mod:`phcgnn.nn`, the multiplication tables in :mod:`phcgnn.algebra`, the pure functions under both
in :mod:`phcgnn.functional`, and the checkers for people who write such layers in :mod:`phcgnn.testing`.
"""

from phcgnn._version import __version__

__all__ = ["__version__"]
