import statistics

import numpy as np
import pytest
import torch

from phcgnn.report.statistics import area, box, precision_recall_curve, roc_curve, sparsity, spread


def test_sparsity_is_the_sum_of_the_paper(dtype):
    u = torch.randn(6, 4, dtype=dtype)
    total = sum(abs(u[i, j].item()) for i in range(6) for j in range(4))
    assert sparsity(u) == pytest.approx(1 - total / (6 * 4), rel=1e-6)


@pytest.mark.parametrize("fill, expected", [(0.0, 1.0), (1.0, 0.0), (-1.0, 0.0), (2.0, -1.0)])
def test_sparsity_of_a_constant_matrix(fill, expected):
    assert sparsity(torch.full((3, 5), fill)) == expected


def test_spread_is_mean_and_deviation_of_the_curves_that_have_an_epoch():
    curves = [[1.0, 2.0, float("nan"), 7.0], [3.0, 5.0, 1.0], [8.0, 2.0]]
    found = spread(curves)
    for epoch, count in enumerate([3, 3, 1, 1]):
        values = [curve[epoch] for curve in curves if epoch < len(curve) and curve[epoch] == curve[epoch]]
        assert found.count[epoch] == count == len(values)
        assert found.mean[epoch] == pytest.approx(statistics.mean(values))
        assert found.std[epoch] == pytest.approx(statistics.stdev(values) if count > 1 else 0.0)


def test_spread_of_an_epoch_that_no_curve_has_is_not_a_number():
    found = spread([[float("nan"), 1.0]])
    assert np.isnan(found.mean[0])
    assert found.count.tolist() == [0, 1]
    assert len(spread([]).mean) == 0


@pytest.mark.parametrize("seed", range(5))
def test_box_is_what_matplotlib_computes(seed):
    cbook = pytest.importorskip("matplotlib.cbook")
    values = np.random.default_rng(seed).standard_t(1.5, size=11)
    found, expected = box(values), cbook.boxplot_stats(values)[0]
    ours = [found.low, found.first, found.median, found.third, found.high]
    assert ours == pytest.approx([expected[key] for key in ("whislo", "q1", "med", "q3", "whishi")])
    assert sorted(found.outliers) == pytest.approx(sorted(expected["fliers"]))


def test_box_of_one_value_is_flat_and_of_none_is_refused():
    found = box([2.0])
    assert (found.low, found.first, found.median, found.third, found.high, found.outliers) == (*[2.0] * 5, ())
    with pytest.raises(ValueError, match="`values` is empty"):
        box([])


@pytest.mark.parametrize("ties", [False, True])
def test_curves_are_those_of_scikit_learn(ties):
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(3)
    truth = generator.integers(0, 2, 60).astype(float)
    scores = truth + generator.normal(size=60)
    scores = scores.round() if ties else scores
    x, y = roc_curve(scores, truth)
    false, true, _ = metrics.roc_curve(truth, scores, drop_intermediate=False)
    np.testing.assert_allclose(x, false)
    np.testing.assert_allclose(y, true)
    assert area(x, y) == pytest.approx(metrics.roc_auc_score(truth, scores))
    recall, precision = precision_recall_curve(scores, truth)
    theirs, of_recall, _ = metrics.precision_recall_curve(truth, scores)
    np.testing.assert_allclose(recall, of_recall[::-1])
    np.testing.assert_allclose(precision, theirs[::-1])
    assert area(recall, precision, steps=True) == pytest.approx(metrics.average_precision_score(truth, scores))


@pytest.mark.parametrize("truth", [[], [1.0, 1.0], [0.0, 0.0]])
@pytest.mark.parametrize("curve", [roc_curve, precision_recall_curve])
def test_curves_need_yes_and_no(truth, curve):
    with pytest.raises(ValueError, match="needs both"):
        curve(np.ones(len(truth)), np.array(truth))
