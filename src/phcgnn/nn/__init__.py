"""Layers. Each module holds one idea; this one only gathers their names."""

from phcgnn.nn.convert import LayerReport, fold, to_phm
from phcgnn.nn.dropout import ComponentDropout
from phcgnn.nn.encoder import CategoricalEncoder, ContinuousEncoder
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.mlp import PHMLP
from phcgnn.nn.norm import PHCNorm, WhiteningNorm
from phcgnn.nn.real import RealTransformer
from phcgnn.nn.regularization import rule_penalty, weight_penalty
from phcgnn.nn.rule import MultiplicationRule

__all__ = [
    "PHMLP",
    "CategoricalEncoder",
    "ComponentDropout",
    "ContinuousEncoder",
    "LayerReport",
    "MultiplicationRule",
    "PHCNorm",
    "PHMLinear",
    "PHMOptions",
    "RealTransformer",
    "WhiteningNorm",
    "fold",
    "rule_penalty",
    "to_phm",
    "weight_penalty",
]
