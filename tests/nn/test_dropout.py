from __future__ import annotations

import pytest
import torch

from phcgnn.nn import ComponentDropout


def test_units_fall_whole():
    y = ComponentDropout(0.5, n=4)(torch.ones(1000, 32)).view(1000, 4, 8)
    assert (y == y[:, :1]).all()
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert y.mean().item() == pytest.approx(1, abs=0.05)
    assert (y[:, 0].mean(0) - 1).abs().max() < 0.2  # every unit, not the same ones


def test_elements_fall_alone():
    y = ComponentDropout(0.25, n=4, kind="element")(torch.ones(1000, 32)).view(1000, 4, 8)
    assert (y != y[:, :1]).any()
    assert y.mean().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_identity_in_eval_and_for_zero(kind):
    x = torch.randn(5, 8)
    assert torch.equal(ComponentDropout(0.5, n=4, kind=kind).eval()(x), x)
    assert torch.equal(ComponentDropout(0.0, n=4, kind=kind)(x), x)


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_the_seed_fixes_the_mask_and_any_leading_dimensions_work(kind, dtype):
    layer, x = ComponentDropout(0.5, n=2, kind=kind), torch.randn(2, 3, 8, dtype=dtype)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert first.dtype == dtype


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ComponentDropout(1.0), r"in \[0, 1\), got 1.0"),
        (lambda: ComponentDropout(-0.1), r"in \[0, 1\), got -0.1"),
        (lambda: ComponentDropout(float("nan")), r"in \[0, 1\), got nan"),
        (lambda: ComponentDropout("0.1"), "must be a number, got '0.1'"),
        (lambda: ComponentDropout(0.1, n=0), "at least 1, got 0"),
        (lambda: ComponentDropout(0.1, kind="units"), "'unit' or 'element', got 'units'"),
        (lambda: ComponentDropout(0.1, n=3)(torch.zeros(2, 8)), "multiple of n=3, got 8"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_hardly_any_dropout_keeps_nearly_all(kind):
    x = torch.ones(100, 8)
    torch.testing.assert_close(ComponentDropout(1e-10, n=4, kind=kind)(x), x)


@pytest.mark.parametrize("kind", ["unit", "element"])
def test_a_default_device_changes_nothing(kind):
    layer, x = ComponentDropout(0.5, n=4, kind=kind), torch.ones(10, 8)
    with torch.device("meta"):
        y = layer(x)
    assert y.device.type == "cpu"
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_elements_of_a_width_that_n_does_not_divide():
    assert ComponentDropout(0.5, n=3, kind="element")(torch.ones(5, 8)).shape == (5, 8)
