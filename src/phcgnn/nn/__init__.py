"""Layers. Each module holds one idea; this one only gathers their names."""

from phcgnn.nn.adjacency import Adjacency
from phcgnn.nn.aggregation import PNAAggregation, SoftmaxAggregation
from phcgnn.nn.batched import batched_weights
from phcgnn.nn.conv import PHCConv
from phcgnn.nn.convert import LayerReport, fold, to_phm
from phcgnn.nn.dropout import ComponentDropout
from phcgnn.nn.encoder import CategoricalEncoder, ContinuousEncoder
from phcgnn.nn.linear import PHMLinear, PHMOptions
from phcgnn.nn.mlp import PHMLP
from phcgnn.nn.norm import PHCNorm, WhiteningNorm
from phcgnn.nn.pooling import SoftAttentionPooling
from phcgnn.nn.real import RealTransformer
from phcgnn.nn.regularization import rule_penalty, weight_penalty
from phcgnn.nn.rule import MultiplicationRule

__all__ = [
    "PHMLP",
    "Adjacency",
    "CategoricalEncoder",
    "ComponentDropout",
    "ContinuousEncoder",
    "LayerReport",
    "MultiplicationRule",
    "PHCConv",
    "PHCNorm",
    "PHMLinear",
    "PHMOptions",
    "PNAAggregation",
    "RealTransformer",
    "SoftAttentionPooling",
    "SoftmaxAggregation",
    "WhiteningNorm",
    "batched_weights",
    "fold",
    "rule_penalty",
    "to_phm",
    "weight_penalty",
]
