"""Our own kernels for a GPU: sums and softmax over neighbours without atomic additions or tensors of messages.

Nothing here imports Triton before kernels are used; without it, torch's operations are, which give the same.
"""

from phcgnn.nn.kernels.switch import Use, refused, takes, use, wanted, why_not

__all__ = ["Use", "refused", "takes", "use", "wanted", "why_not"]
