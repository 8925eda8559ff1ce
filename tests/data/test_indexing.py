from __future__ import annotations

import numpy as np
import pytest
import torch

from phcgnn.data.indexing import as_index


@pytest.mark.parametrize(
    "indices, expected",
    [
        ([0, -1, 0], [0, 4, 0]),
        ((3,), [3]),
        (range(1, 4), [1, 2, 3]),
        ([], []),
        (torch.tensor([], dtype=torch.int64), []),
        (torch.tensor([4, -5], dtype=torch.int32), [4, 0]),
        (np.array([2, 2], np.uint8), [2, 2]),
        (slice(None), [0, 1, 2, 3, 4]),
        (slice(-2, None), [3, 4]),
        (slice(None, None, -2), [4, 2, 0]),
        (slice(9, 12), []),
        (torch.tensor([True, False, False, True, False]), [0, 3]),
        ([False] * 5, []),
    ],
)
def test_every_way_to_say_it(indices, expected):
    index = as_index(indices, 5)
    assert index.dtype == np.int64
    assert index.tolist() == expected


@pytest.mark.parametrize(
    "indices, error, message",
    [
        ([0, 5], IndexError, "index 5 is out of range, there are 5 graphs"),
        ([-6], IndexError, "index -6 is out of range"),
        ([True, False], IndexError, "one entry for each of the 5 graphs, got 2"),
        ([0.0], TypeError, "must be integers or a mask, got float64"),
        (torch.zeros(2, 2, dtype=torch.int64), IndexError, r"must be a vector, got shape \(2, 2\)"),
    ],
)
def test_what_is_out_of_range_is_refused(indices, error, message):
    with pytest.raises(error, match=message):
        as_index(indices, 5)
