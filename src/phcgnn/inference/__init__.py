"""What trained models are for."""

from phcgnn.inference.predictor import Predictions, Predictor, model_folders
from phcgnn.inference.tables import InvalidMolecule, Report, predict_table

__all__ = ["InvalidMolecule", "Predictions", "Predictor", "Report", "model_folders", "predict_table"]
