"""What trained models are for."""

from phcgnn.inference.predictor import Predictions, Predictor

__all__ = ["Predictions", "Predictor"]
