from __future__ import annotations

import numpy as np
import pytest

from phcgnn.data.molecules.strata import strata


def test_classes_and_gaps():
    assert strata(np.array([2, 0, 2, 1])).tolist() == [2, 0, 2, 1]
    assert strata(np.array([[1.0], [0.0], [np.nan]])).tolist() == [1, 0, 10]


def test_a_regression_target_falls_into_tenths():
    out = strata(np.random.RandomState(0).permutation(1000).astype(float))
    assert np.bincount(out).tolist() == [100] * 10


def test_of_several_targets_the_rarest_yes_decides():
    y = np.array([[1, 1], [1, 0], [0, 0], [np.nan, np.nan], [np.nan, 1], [1, np.nan]])
    assert strata(y).tolist() == [1, 0, 2, 3, 1, 0]


def test_several_numbers_are_refused():
    with pytest.raises(ValueError, match=r"of several targets \(2\) all must be yes/no"):
        strata(np.array([[0.5, 1.0]]))
    with pytest.raises(ValueError, match=r"must be \(G,\) or \(G, T\)"):
        strata(np.zeros((1, 1, 1)))
