from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from phcgnn.errors import ShapeError
from phcgnn.nn import PHMLP, PHCNorm, WhiteningNorm
from phcgnn.nn.norm import normalise
from phcgnn.testing import assert_resets_everything


@pytest.mark.parametrize("n", [1, 3, 4])
def test_component_norm_is_one_batch_norm(n, dtype, tol):
    ours, theirs = PHCNorm(12, n).to(dtype), nn.BatchNorm1d(12).to(dtype)
    for _ in range(3):
        x = torch.randn(20, 12, dtype=dtype) * 3 + 1
        torch.testing.assert_close(ours(x), theirs(x), **tol)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), **tol)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    by_component = [nn.BatchNorm1d(12 // n).to(dtype)(part) for part in x.chunk(n, dim=1)]
    torch.testing.assert_close(PHCNorm(12, n).to(dtype)(x), torch.cat(by_component, 1), **tol)


@pytest.mark.parametrize("norm", [PHCNorm, WhiteningNorm])
def test_leading_dimensions_are_the_batch(norm):
    layer = norm(8, 4)
    x = torch.randn(5, 6, 8)
    torch.testing.assert_close(layer(x), copy.deepcopy(layer)(x.view(30, 8)).view(5, 6, 8))
    assert norm(8, 4)(torch.randn(0, 8)).shape == (0, 8)


@pytest.mark.parametrize("norm", [PHCNorm, WhiteningNorm])
def test_a_single_row_uses_the_running_statistics_and_leaves_them(norm):
    layer = norm(8, 4)
    layer(torch.randn(50, 8) * 2 + 1)
    state = copy.deepcopy(layer.state_dict())
    x = torch.randn(1, 8, requires_grad=True)
    y = layer(x)
    torch.testing.assert_close(y, copy.deepcopy(layer).eval()(x))
    y.sum().backward()
    assert x.grad.abs().sum() > 0
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_whitening_for_one_component_is_batch_norm(dtype, tol):
    ours, theirs = WhiteningNorm(6, 1).to(dtype), nn.BatchNorm1d(6).to(dtype)
    for _ in range(3):
        x = torch.randn(20, 6, dtype=dtype) * 3 + 1
        torch.testing.assert_close(ours(x), theirs(x), **tol)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), **tol)
    torch.testing.assert_close(ours.running_cov.flatten(), theirs.running_var, **tol)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_whitening_decorrelates_every_feature(n):
    m = 4
    mixing = torch.randn(n * m, n * m, dtype=torch.float64)
    x = torch.randn(500, n * m, dtype=torch.float64) @ mixing + 5
    layer = WhiteningNorm(n * m, n, eps=1e-12).double()
    y = layer(x).view(500, n, m)
    for feature in range(m):
        cov = y[:, :, feature].T.cov(correction=0)
        torch.testing.assert_close(cov, torch.eye(n, dtype=torch.float64), atol=1e-6, rtol=0)
    assert y.mean(0).abs().max() < 1e-10


def test_whitening_in_eval_comes_near_to_training_after_many_batches():
    layer = WhiteningNorm(8, 4)
    x = torch.randn(4000, 8) @ torch.randn(8, 8)
    for _ in range(200):
        y = layer(x)
    torch.testing.assert_close(layer.eval()(x), y, atol=1e-2, rtol=1e-2)
    assert layer.num_batches_tracked == 200


def test_whitening_with_fewer_rows_than_components_is_finite_and_differentiable():
    layer, x = WhiteningNorm(16, 8), torch.randn(3, 16, requires_grad=True)
    layer(x).square().sum().backward()
    assert x.grad.isfinite().all()
    assert layer.weight.grad.isfinite().all()


def batches(kind, rows, n, m=4):
    if kind == "collinear":
        return torch.randn(rows, m).repeat(1, n)
    return torch.randn(rows, n * m) + (100 if kind == "offset" else 0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize("kind", ["random", "collinear", "offset"])
def test_whitening_of_singular_batches_at_any_scale(kind, scale):
    for n, seed in itertools.product((2, 4, 16), range(2)):
        for rows in sorted({2, n // 2 + 1, n, n + 1, 256}):
            torch.manual_seed(seed)
            layer, x = WhiteningNorm(4 * n, n), (batches(kind, rows, n) * scale).requires_grad_()
            for _ in range(2):
                y = layer(x)
            assert y.abs().max() < 10, (n, rows, seed)
            y.square().sum().backward()
            assert x.grad.isfinite().all(), (n, rows, seed)
            assert layer.eval()(x).isfinite().all(), (n, rows, seed)


@pytest.mark.parametrize("scale", [10.0, 30.0])
def test_an_mlp_that_whitens_takes_four_rows(scale):
    model = PHMLP(32, 64, n=8, norm="whitening")
    model(torch.randn(4, 32) * scale).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_whitening_keeps_its_statistics_wide(narrow):
    layer = WhiteningNorm(16, 16)
    x = torch.randn(500, 1).repeat(1, 16) + 0.01 * torch.randn(500, 16)
    for _ in range(100):
        layer(x)
    expected = layer.eval().running_cov.clone()
    layer.to(narrow)
    assert layer.weight.dtype == layer.bias.dtype == narrow
    assert layer.running_mean.dtype == layer.running_cov.dtype == torch.float32
    assert torch.equal(layer.running_cov, expected)
    assert layer(x.to(narrow)).dtype == narrow
    assert layer(x.to(narrow)).isfinite().all()
    made = WhiteningNorm(8, 4, dtype=narrow)
    assert (made.weight.dtype, made.running_cov.dtype, made.running_mean.dtype) == (narrow, *[torch.float32] * 2)
    assert layer.double().running_cov.dtype == torch.float64


@pytest.mark.parametrize("training", [True, False])
def test_whitening_takes_no_part_in_autocast(training):
    layer, x = WhiteningNorm(8, 4), torch.randn(50, 8) @ torch.randn(8, 8)
    layer(x)
    layer.train(training)
    expected = copy.deepcopy(layer)(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), expected)


def test_whitening_gradcheck():
    layer = WhiteningNorm(6, 3).double()
    x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))


def test_whitening_in_narrow_precision():
    layer, x = WhiteningNorm(8, 4), torch.randn(50, 8)
    expected = copy.deepcopy(layer)(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x.bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("norm", [PHCNorm, WhiteningNorm])
@pytest.mark.parametrize("training", [True, False])
def test_compiles_and_resets(norm, training):
    layer, x = norm(8, 4).train(training), torch.randn(9, 8)
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(layer), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    assert_resets_everything(layer)
    assert "n=4" in repr(layer)


@pytest.mark.parametrize("norm", [PHCNorm, WhiteningNorm])
def test_bad_input(norm):
    with pytest.raises(ValueError, match=r"multiple of n=4, got 6.*4 or 8"):
        norm(6, 4)
    with pytest.raises(ValueError, match=r"shape \(3, 4\), expected \(\*, 8\)"):
        norm(8, 4)(torch.zeros(3, 4))


@pytest.mark.parametrize("norm", [PHCNorm, WhiteningNorm])
def test_with_a_mask_the_others_do_not_exist(norm):
    ours, alone = norm(8, 4).double(), norm(8, 4).double()
    mask = torch.rand(40) < 0.6
    for _ in range(3):
        x = torch.randn(40, 8, dtype=torch.float64) * 3 + 1
        x[~mask] = torch.randn(int((~mask).sum()), 8, dtype=torch.float64) * 1e6
        x[(~mask).nonzero()[0]] = float("nan")  # not even that reaches the others
        left, right = x.clone().requires_grad_(), x[mask].clone().requires_grad_()
        y, expected = ours(left, mask), alone(right)
        torch.testing.assert_close(y[mask], expected, rtol=1e-11, atol=1e-11)
        assert (y[~mask] == 0).all()
        pull = torch.randn_like(y)
        got = torch.autograd.grad(y, [left, *ours.parameters()], pull)
        wanted = torch.autograd.grad(expected, [right, *alone.parameters()], pull[mask])
        torch.testing.assert_close(got[0][mask], wanted[0], rtol=1e-9, atol=1e-9)
        assert (got[0][~mask] == 0).all()
        torch.testing.assert_close(got[1:], wanted[1:], rtol=1e-10, atol=1e-10)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, alone.state_dict()[name], rtol=1e-12, atol=1e-12, msg=name)
    x = torch.randn(40, 8, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x, mask)[mask], alone.eval()(x[mask]))
    assert (ours(x, mask)[~mask] == 0).all()


@pytest.mark.parametrize("norm", [PHCNorm, WhiteningNorm])
@pytest.mark.parametrize("real", [0, 1])
def test_with_a_mask_a_single_row_uses_the_running_statistics_and_leaves_them(norm, real):
    layer = norm(8, 4)
    layer(torch.randn(50, 8) * 2 + 1)
    state = copy.deepcopy(layer.state_dict())
    x = torch.randn(5, 8)
    y = layer(x, torch.arange(5) < real)
    torch.testing.assert_close(y[:real], copy.deepcopy(layer).eval()(x[:real]))
    assert (y[real:] == 0).all()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name]), name


@pytest.mark.parametrize("norm", [PHCNorm, WhiteningNorm])
def test_a_mask_that_does_not_fit(norm):
    with pytest.raises(ShapeError, match=r"the mask \(torch.bool\).*expected \(5, 6\)"):
        norm(8, 4)(torch.randn(5, 6, 8), torch.ones(5, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"the mask \(torch.float32\)"):
        norm(8, 4)(torch.randn(5, 8), torch.ones(5))
    x = torch.randn(5, 6, 8)
    assert norm(8, 4)(x, torch.ones(5, 6, dtype=torch.bool)).shape == x.shape


def test_a_norm_that_knows_no_mask():
    x, mask = torch.randn(5, 8), torch.arange(5) < 3
    with pytest.raises(ValueError, match=r"BatchNorm1d would count the ghosts"):
        normalise(nn.BatchNorm1d(8), x, mask)
    y = normalise(nn.LayerNorm(8), x, mask)
    torch.testing.assert_close(y[:3], nn.LayerNorm(8)(x[:3]))
    assert (y[3:] == 0).all()


def test_a_mask_in_bfloat16():
    layer, x = PHCNorm(8, 2), torch.randn(300, 8) * 3 + 2
    mask = torch.arange(300) < 280
    y = layer(x.bfloat16(), mask)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y[:280].float(), nn.BatchNorm1d(8)(x[:280]), rtol=0.02, atol=0.03)


@pytest.mark.parametrize("momentum", [0.1, None], ids=["moving", "cumulative"])
@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_statistics_are_kept_as_batch_norm_keeps_them(masked, tracks, momentum, dtype, tol):
    norm, plain = PHCNorm(12, n=3, dtype=dtype), torch.nn.BatchNorm1d(12, dtype=dtype)
    for module in (norm, plain):
        module.momentum, module.track_running_stats = momentum, tracks
    for _ in range(3):
        x = 2 + 3 * torch.randn(40, 12, dtype=dtype)
        y = norm(x, torch.ones(40, dtype=torch.bool)) if masked else norm(x)
        torch.testing.assert_close(y, plain(x), rtol=10 * tol["rtol"], atol=10 * tol["atol"])
    torch.testing.assert_close(norm.running_mean, plain.running_mean, **tol)
    torch.testing.assert_close(norm.running_var, plain.running_var, rtol=10 * tol["rtol"], atol=10 * tol["atol"])
    assert torch.equal(norm.num_batches_tracked, plain.num_batches_tracked)
    x = torch.randn(5, 12, dtype=dtype)
    torch.testing.assert_close(norm.eval()(x), plain.eval()(x), rtol=10 * tol["rtol"], atol=10 * tol["atol"])
