"""Molecules: tables of SMILES, what makes graphs of them, and the ways to split them."""

from phcgnn.data.molecules.featurisers import FEATURISERS, Featuriser, SmilesError, concatenate, featuriser, label
from phcgnn.data.molecules.ogb_features import OgbFeaturiser
from phcgnn.data.molecules.pool import available_cores, featurise
from phcgnn.data.molecules.zinc_features import ZincExtendedFeaturiser, ZincFeaturiser

__all__ = [
    "FEATURISERS",
    "Featuriser",
    "OgbFeaturiser",
    "SmilesError",
    "ZincExtendedFeaturiser",
    "ZincFeaturiser",
    "available_cores",
    "concatenate",
    "featurise",
    "featuriser",
    "label",
]
