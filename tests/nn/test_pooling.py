from __future__ import annotations

import itertools

import pytest
import torch
from torch_geometric.nn import aggr

from phcgnn.nn import PHMLinear, RealTransformer, SoftAttentionPooling
from phcgnn.nn.pooling import POOLINGS, build_pooling
from phcgnn.testing import assert_resets_everything, assert_seed_fixes_parameters

PTR = torch.tensor([0, 3, 3, 4, 9])  # the second graph is empty, the third has one node
INDEX = torch.tensor([0, 0, 0, 2, 3, 3, 3, 3, 3])


@pytest.mark.parametrize("given", ["ptr", "index", "both"])
def test_equals_the_formula_graph_by_graph(given, dtype, tol):
    pool = SoftAttentionPooling(12, n=4, dtype=dtype)
    h = torch.randn(9, 12, dtype=dtype, requires_grad=True)
    gates = torch.sigmoid(pool.real(pool.linear(h)))
    gated = (h.view(9, 4, 3) * gates[:, None]).flatten(1)
    expected = torch.stack([gated[a:b].sum(0) for a, b in itertools.pairwise(PTR)])
    arguments = {"ptr": {"ptr": PTR}, "index": {"index": INDEX}, "both": {"index": INDEX, "ptr": PTR}}[given]
    actual = pool(h, **arguments, dim_size=4)
    torch.testing.assert_close(actual, expected, **tol)
    inputs, cotangent = [h, *pool.parameters()], torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(actual, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent), strict=True
    ):
        torch.testing.assert_close(a, b, **tol)


def test_gates_are_kept_when_asked_for():
    pool, h = SoftAttentionPooling(12, n=4), torch.randn(9, 12)
    pool(h, ptr=PTR)
    assert pool.last_gates is None
    pool.keep_gates = True
    pool(h, ptr=PTR)
    assert pool.last_gates.shape == (9, 3)
    assert not pool.last_gates.requires_grad
    assert torch.equal(pool.last_gates, pool.gates(h))
    assert 0 < pool.last_gates.min() <= pool.last_gates.max() < 1


@pytest.mark.parametrize("name", [*POOLINGS, "median", "softmax", "set-transformer"])
def test_names(name):
    assert build_pooling(name, 8, 2)(torch.randn(9, 8), INDEX, dim_size=4).shape == (4, 8)


def test_instances_and_unknown_names():
    readout = aggr.SortAggregation(2)
    assert build_pooling(readout, 8) is readout
    with pytest.raises(
        ValueError, match=r"unknown pooling 'attenton'; choose from attention, .*Did you mean 'attention'"
    ):
        build_pooling("attenton", 8)
    with pytest.raises(ValueError, match="Set2Set needs `processing_steps`"):
        build_pooling("Set2Set", 8)


def test_starts_and_repr():
    assert_seed_fixes_parameters(lambda: SoftAttentionPooling(8, n=2))
    assert_resets_everything(SoftAttentionPooling(8, n=2))
    assert repr(SoftAttentionPooling(8, n=2)) == "SoftAttentionPooling(8, n=2)"
    with pytest.raises(ValueError, match="multiple of n=3"):
        SoftAttentionPooling(8, n=3)


def test_a_narrow_type_is_summed_in_float32():
    pool = SoftAttentionPooling(4, n=2).to(torch.bfloat16)
    h = torch.ones(3000, 4, dtype=torch.bfloat16)
    total = pool(h, ptr=torch.tensor([0, 3000]))
    torch.testing.assert_close(total, 3000 * pool(h[:1], ptr=torch.tensor([0, 1])))


@pytest.mark.parametrize("watched", ["linear", "real", None])
def test_gates_by_one_map_or_two(watched):
    pool, x, seen = SoftAttentionPooling(8, n=4).double(), torch.randn(5, 8, dtype=torch.float64), []
    if watched:
        getattr(pool, watched).register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(pool.gates(x), pool.real.affine(pool.linear(x)).sigmoid())
    assert len(seen) == (0 if watched is None else 1 + (watched == "linear"))


def test_a_wrong_width_is_refused():
    with pytest.raises(ValueError, match="PHMLinear: the input"):
        SoftAttentionPooling(8, n=4).gates(torch.randn(5, 7))


class Louder(PHMLinear):
    """A layer with a forward of its own."""

    def forward(self, x):
        return 3 * super().forward(x) + 1


@pytest.mark.parametrize("which", ["linear", "real", "affine"])
def test_gates_of_layers_that_are_not_the_usual(which):
    pool, x = SoftAttentionPooling(8, n=2).eval(), torch.randn(5, 8)
    if which == "linear":
        pool.linear = Louder(8, 8, 2)
    elif which == "real":
        pool.real = RealTransformer(8, 2, kind="norm")
    else:
        pool.real.affine = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh())
    with torch.no_grad():
        torch.testing.assert_close(pool.gates(x), pool.real(pool.linear(x)).sigmoid())
