"""Whole networks."""

from phcgnn.models.config import PHCGNNConfig
from phcgnn.models.folder import ModelFolderError, SavedModel, load_model, save_model
from phcgnn.models.phc_gnn import PHCGNN
from phcgnn.models.summary import Summary

__all__ = ["PHCGNN", "ModelFolderError", "PHCGNNConfig", "SavedModel", "Summary", "load_model", "save_model"]
