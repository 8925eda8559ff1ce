"""What the benchmarks share; it lives in the package, where ``phcgnn bench`` uses it too."""

from phcgnn.experiments.timing import Step, interleave, machine, median_ratio, peak_bytes

__all__ = ["Step", "interleave", "machine", "median_ratio", "peak_bytes"]
