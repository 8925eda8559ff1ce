"""Whole networks."""

from phcgnn.models.config import PHCGNNConfig
from phcgnn.models.phc_gnn import PHCGNN

__all__ = ["PHCGNN", "PHCGNNConfig"]
