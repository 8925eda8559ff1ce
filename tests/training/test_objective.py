import pytest
import torch
import torch.nn.functional as F

from phcgnn.errors import ShapeError
from phcgnn.nn import PHMLinear, rule_penalty, weight_penalty
from phcgnn.training.losses import LOSSES
from phcgnn.training.objective import Objective

NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "torch_loss"),
    [("l1", F.l1_loss), ("mse", F.mse_loss), ("huber", F.huber_loss), ("bce", F.binary_cross_entropy_with_logits)],
)
def test_is_torchs_loss_over_the_labels_that_exist(name, torch_loss):
    outputs = torch.randn(20, 3, dtype=torch.float64, requires_grad=True)
    targets = (torch.rand(20, 3, dtype=torch.float64) > 0.5).double()
    gaps = torch.rand(20, 3) < 0.3
    total, count = Objective(loss=name).task(outputs, targets.masked_fill(gaps, NAN))
    expected = torch_loss(outputs[~gaps], targets[~gaps])
    torch.testing.assert_close(total / count, expected)
    got, want = (torch.autograd.grad(value, outputs, retain_graph=True)[0] for value in (total / count, expected))
    torch.testing.assert_close(got, want)  # and no NaN comes through the gaps
    assert not got[gaps].any()


@pytest.mark.parametrize("name", ["cross_entropy", "focal"])
def test_classes_with_gaps(name):
    outputs, targets = torch.randn(10, 4), torch.randint(4, (10,))
    expected = F.cross_entropy(outputs[2:], targets[2:], reduction="none")
    if name == "focal":
        p = outputs[2:].softmax(1).gather(1, targets[2:, None])[:, 0]
        expected = (1 - p) ** 2 * expected
    targets[:2] = -100
    total, count = Objective(loss=name).task(outputs, targets)
    assert count == 8
    torch.testing.assert_close(total, expected.sum())


def test_focal_of_yes_and_no():
    outputs, targets = torch.tensor([[2.0], [-1.0]]), torch.tensor([[1.0], [1.0]])
    p = outputs.sigmoid()
    total, _ = Objective(loss="focal").task(outputs, targets)
    torch.testing.assert_close(total, (-((1 - p) ** 2) * p.log()).sum())


def test_weights_of_graphs_labels_and_classes():
    outputs, targets = torch.randn(6, 2), torch.randint(2, (6, 2)).float()
    weights, positive = torch.rand(6), torch.tensor([3.0, 0.5])
    total, count = Objective(loss="bce", positive_weights=positive).task(outputs, targets, weights)
    w = weights[:, None] * torch.where(targets == 1, positive, 1.0)
    torch.testing.assert_close(count, w.sum())
    expected = F.binary_cross_entropy_with_logits(outputs, targets, weight=w, reduction="sum")
    torch.testing.assert_close(total, expected)
    classes, of_class = torch.randint(3, (6,)), torch.tensor([1.0, 2.0, 0.5])
    logits = torch.randn(6, 3)
    total, count = Objective(loss="cross_entropy", class_weights=of_class).task(logits, classes)
    torch.testing.assert_close(total / count, F.cross_entropy(logits, classes, weight=of_class))


@pytest.mark.parametrize("scale", ["lr", "one"])
def test_penalties(scale):
    layer = PHMLinear(8, 8, n=4)
    objective = Objective(loss="l1", lambda1=0.3, lambda2=0.7, penalty_scale=scale)
    expected = (0.3 * weight_penalty(layer) + 0.7 * rule_penalty(layer)) * (0.01 if scale == "lr" else 1)
    torch.testing.assert_close(objective.penalty(layer, 0.01), expected)
    assert Objective(loss="l1").penalty(layer, 0.01) is None


def test_bad_input():
    with pytest.raises(ValueError, match="unknown loss 'l3'"):
        Objective(loss="l3")
    with pytest.raises(ValueError, match="`lambda1` must be at least 0, got -1"):
        Objective(loss="l1", lambda1=-1)
    with pytest.raises(ValueError, match="`lambda2` must be at least 0, got nan"):
        Objective(loss="l1", lambda2=NAN)
    with pytest.raises(ValueError, match="'lr' or 'one', got 'two'"):
        Objective(loss="l1", penalty_scale="two")
    with pytest.raises(ShapeError, match=r"shape \(3, 2\), expected \(3, 1\)"):
        Objective(loss="l1").task(torch.zeros(3, 2), torch.zeros(3, 1))


def test_a_batch_without_labels_has_no_loss_and_no_nan():
    outputs = torch.randn(3, 2, requires_grad=True)
    for name in ("l1", "mse", "huber", "bce", "focal"):
        total, count = Objective(loss=name).task(outputs, torch.full((3, 2), NAN))
        (gradient,) = torch.autograd.grad(total, outputs)
        assert (total, count) == (0, 0)
        assert not gradient.any()
    assert len(LOSSES) == 6
