"""Data sets as flat tensors, and the ways to them."""

from phcgnn.data.batching import PaddedShape
from phcgnn.data.flat import FlatGraphs
from phcgnn.data.graphs import GraphStore
from phcgnn.data.loader import GraphLoader
from phcgnn.data.metadata import Features, StoreMetadata, Task

__all__ = ["Features", "FlatGraphs", "GraphLoader", "GraphStore", "PaddedShape", "StoreMetadata", "Task"]
