"""The paper's data sets, each a small adapter around the official loader.

>>> from phcgnn.data.benchmarks import DATASETS
>>> DATASETS["zinc"].metadata.node_features
(28,)
"""

from phcgnn.data.benchmarks import nci, ogb, superpixels, zinc  # noqa: F401 (they register themselves)
from phcgnn.data.benchmarks.base import DATASETS, Benchmark

__all__ = ["DATASETS", "Benchmark"]
