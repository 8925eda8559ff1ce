"""From raw features to hypercomplex embeddings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phcgnn.errors import ShapeError, require_positive
from phcgnn.nn.affine import outer_sum
from phcgnn.nn.eager import plain_on_cpu

__all__ = ["CategoricalEncoder", "ContinuousEncoder"]


class CategoricalEncoder(nn.Module):
    r"""Sum of one learned vector a feature, read in a single look-up.

    .. math:: \mathbf{h} = \sum_f \mathbf{T}_f[x_f]

    The tables of all features are one matrix (``weight``, one row a category), so that any number of features costs one
    ``embedding_bag``; nothing of size rows x features x width is allocated.

    Out-of-range values are refused by column and value. On a GPU this check waits for the device: set ``validate`` to
    False where the data has been checked already.

    Args:
        cardinalities (sequence of int): Number of categories of each feature.
        features (int): Output width.

    Shapes:
        - **input:** integers :math:`(*, F)`; for a single feature also :math:`(rows,)`
        - **output:** :math:`(*, features)`

    >>> encoder = CategoricalEncoder([5, 3], 8)
    >>> encoder(torch.tensor([[4, 0], [1, 2]])).shape
    torch.Size([2, 8])
    >>> encoder(torch.tensor([[4, 3]]))
    Traceback (most recent call last):
    ValueError: CategoricalEncoder: column 1 holds the value 3, expected 0 to 2; the feature was declared with
        3 categories.
    """

    offsets: Tensor
    _limits: Tensor

    def __init__(
        self,
        cardinalities: Sequence[int],
        features: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if isinstance(cardinalities, int) or len(cardinalities) == 0:
            raise ValueError(
                f"CategoricalEncoder: `cardinalities` must list at least one number, got {cardinalities!r}."
            )
        for cardinality in cardinalities:
            require_positive("CategoricalEncoder", cardinality=cardinality)
        require_positive("CategoricalEncoder", features=features)
        super().__init__()
        self.cardinalities, self.features, self.validate = tuple(cardinalities), features, True
        count = len(self.cardinalities)
        self.register_buffer("offsets", torch.empty(count, dtype=torch.long, device=device), persistent=False)
        self.register_buffer("_limits", torch.empty(count, dtype=torch.long, device=device), persistent=False)
        self.weight = nn.Parameter(torch.empty(sum(self.cardinalities), features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot for the table of each feature; where the tables begin is written anew as well (``to_empty``)."""
        starts = [0, *itertools.accumulate(self.cardinalities)][:-1]
        with torch.no_grad():
            self.offsets.copy_(torch.tensor(starts, device="cpu"))
            self._limits.copy_(torch.tensor(self.cardinalities, device="cpu"))
            for table in self.weight.split(self.cardinalities):
                bound = math.sqrt(6 / sum(table.shape))
                table.uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:  # (*, F) -> (*, features)
        """Look the vectors up and sum them."""
        codes = self.codes(x)
        if codes.shape[1] == 1:
            vectors = F.embedding(codes[:, 0], self.weight)
        elif self._counts(codes):
            vectors = _BagOfFew.apply(codes, self.weight)
        else:
            vectors = F.embedding_bag(codes, self.weight, mode="sum")
        leading = x.shape if x.dim() == 1 and codes.shape[1] == 1 else x.shape[:-1]
        return vectors.view(*leading, self.features)

    def one_hot(self, x: Tensor) -> Tensor:  # (*, F) -> (rows, categories)
        """Return ones where :meth:`forward` reads, so that its result is the product with ``weight``."""
        return _one_hot(self.codes(x), self.weight.shape[0], self.weight.dtype)

    def _counts(self, codes: Tensor) -> bool:
        """Whether the gradient is sooner counted than gathered."""
        wanted = self.weight.requires_grad and torch.is_grad_enabled()
        return wanted and self.weight.shape[0] <= 2 * self.features and plain_on_cpu(codes, self.weight)

    def codes(self, x: Tensor) -> Tensor:  # (*, F) -> (rows, F)
        """Return the row of ``weight`` that each feature reads."""
        if x.is_floating_point() or x.is_complex():
            raise TypeError(
                f"CategoricalEncoder: expected integers, got {x.dtype}; call `.long()` if these are categories, "
                "or use ContinuousEncoder."
            )
        count = len(self.cardinalities)
        if x.dim() == 1 and count == 1:
            x = x[:, None]
        if x.dim() == 0 or x.shape[-1] != count:
            raise ShapeError(
                "CategoricalEncoder: the input",
                got=x.shape,
                expected=("*", count),
                hint=f"one column for each of the cardinalities {self.cardinalities}",
            )
        codes = x.reshape(-1, count).long()
        if self.validate and not torch.compiler.is_compiling():
            self._require_range(codes)
        return codes + self.offsets

    def _require_range(self, codes: Tensor) -> None:
        outside = (codes < 0) | (codes >= self._limits)
        if not outside.any():
            return
        row, column = (int(i) for i in outside.nonzero()[0])
        limit = self.cardinalities[column]
        raise ValueError(
            f"CategoricalEncoder: column {column} holds the value {int(codes[row, column])}, "
            f"expected 0 to {limit - 1}; the feature was declared with {limit} categories."
        )

    def extra_repr(self) -> str:
        """Describe the encoder for ``repr``."""
        return f"cardinalities={self.cardinalities}, features={self.features}"


class _BagOfFew(torch.autograd.Function):
    """``embedding_bag`` on the CPU, where torch takes ten times as long for the gradient of a small table."""

    @staticmethod
    def forward(ctx: Any, codes: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(codes)
        ctx.categories, ctx.dtype = table.shape[0], table.dtype
        return F.embedding_bag(codes, table, mode="sum")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (codes,) = ctx.saved_tensors
        return None, outer_sum(_one_hot(codes, ctx.categories, ctx.dtype), gradients[0])


def _one_hot(codes: Tensor, categories: int, dtype: torch.dtype) -> Tensor:
    ones = codes.new_ones((), dtype=dtype).expand(codes.shape)
    return codes.new_zeros(codes.shape[0], categories, dtype=dtype).scatter_add_(1, codes, ones)


class ContinuousEncoder(nn.Module):
    r"""One linear map from F real features to the width: :math:`\mathbf{h} = \mathbf{A}\mathbf{x} + \mathbf{b}`.

    Numbers of any type are taken and brought to that of the weight.

    Args:
        in_features (int): Number of raw features F.
        features (int): Output width.

    Shapes:
        - **input:** :math:`(*, F)`; for a single feature also :math:`(rows,)`
        - **output:** :math:`(*, features)`

    >>> ContinuousEncoder(3, 8)(torch.randn(5, 3)).shape
    torch.Size([5, 8])
    """

    def __init__(
        self,
        in_features: int,
        features: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_positive("ContinuousEncoder", in_features=in_features, features=features)
        super().__init__()
        self.in_features, self.features = in_features, features
        self.affine = nn.Linear(in_features, features, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Start the map anew."""
        self.affine.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:  # (*, F) -> (*, features)
        """Apply the map."""
        if x.dim() == 1 and self.in_features == 1:
            x = x[:, None]
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise ShapeError("ContinuousEncoder: the input", got=x.shape, expected=("*", self.in_features))
        return self.affine(x.to(self.affine.weight.dtype))

    def extra_repr(self) -> str:
        """Describe the encoder for ``repr``."""
        return f"{self.in_features}, {self.features}"
