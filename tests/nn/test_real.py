from __future__ import annotations

import pytest
import torch

from phcgnn.nn import RealTransformer
from phcgnn.testing import assert_resets_everything


def test_reductions_over_components():
    x = torch.randn(5, 12)
    parts = x.view(5, 3, 4)
    assert torch.equal(RealTransformer(12, 3, kind="sum")(x), parts.sum(1))
    assert torch.equal(RealTransformer(12, 3, kind="mean")(x), parts.mean(1))
    torch.testing.assert_close(RealTransformer(12, 3, kind="norm")(x), parts.square().sum(1).sqrt())


def test_linear_is_a_full_matrix(dtype):
    layer = RealTransformer(12, 3, dtype=dtype)
    assert layer.affine.weight.shape == (4, 12)
    assert layer(torch.randn(2, 5, 12, dtype=dtype)).shape == (2, 5, 4)
    assert_resets_everything(layer)


def test_norm_has_a_gradient_at_zero():
    x = torch.zeros(2, 4, requires_grad=True)
    RealTransformer(4, 2, kind="norm")(x).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["sum", "mean", "norm"])
def test_reductions_learn_nothing(kind):
    layer = RealTransformer(12, 3, kind=kind)
    layer.reset_parameters()
    assert not list(layer.parameters())
    assert kind in repr(layer)


def test_bad_input():
    with pytest.raises(ValueError, match="multiple of n=4, got 6"):
        RealTransformer(6, 4)
    with pytest.raises(ValueError, match="one of linear, sum, mean, norm, got 'max'"):
        RealTransformer(8, 4, kind="max")
    with pytest.raises(ValueError, match=r"shape \(2, 6\), expected \(\*, 8\)"):
        RealTransformer(8, 4)(torch.zeros(2, 6))
