"""Every checker passes a layer that is right and fails one that is wrong."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from phcgnn.nn import PHMLinear
from phcgnn.testing import (
    assert_batch_equals_one_by_one,
    assert_equals_kronecker_sum,
    assert_never_stale,
    assert_permutation_equivariant,
    assert_permutation_invariant,
    assert_resets_everything,
    assert_seed_fixes_parameters,
)


def add_neighbours(x, edge_index, edge_attr, ptr):
    messages = x[edge_index[0]] if edge_attr is None else x[edge_index[0]] + edge_attr
    return torch.relu(x + torch.zeros_like(x).index_add(0, edge_index[1], messages))


def pool(x, edge_index, edge_attr, ptr):
    h = add_neighbours(x, edge_index, edge_attr, ptr)
    return torch.stack([h[a:b].sum(0) for a, b in itertools.pairwise(ptr)])


def graph(nodes=7, edges=15, attributes=True):
    return torch.randn(nodes, 4), torch.randint(nodes, (2, edges)), torch.randn(edges, 4) if attributes else None


class Transposed(PHMLinear):
    def forward(self, x):
        return nn.functional.linear(
            x, sum(torch.kron(w, c) for c, w in zip(self.rule.constants, self.weight, strict=True))
        )


class BlocksTheRule(PHMLinear):
    def forward(self, x):
        return nn.functional.linear(
            x,
            torch.stack([torch.kron(c.detach(), w) for c, w in zip(self.rule.constants, self.weight, strict=True)]).sum(
                0
            ),
            self.bias,
        )


class NegatesTheGradient(PHMLinear):
    def forward(self, x):
        y = super().forward(x)
        return 2 * y.detach() - y


class IgnoresTheBias(PHMLinear):
    def forward(self, x):
        return nn.functional.linear(x, self.dense_weight())


class Blocks(PHMLinear):
    what = ""

    def forward(self, x):
        x = x.detach() if "x" in self.what else x
        bias = self.bias.detach() if "b" in self.what else self.bias
        y = nn.functional.linear(x, self.dense_weight(), bias)
        return y.detach() if "y" in self.what else y


class Halves(Blocks):
    """Right outputs, half the gradients."""

    def forward(self, x):
        x = (x + x.detach()) / 2 if "x" in self.what else x
        bias = (self.bias + self.bias.detach()) / 2 if "b" in self.what else self.bias
        return nn.functional.linear(x, self.dense_weight(), bias)


@pytest.mark.parametrize(
    "kind, what, message",
    [
        (Blocks, "x", "no gradient reaches x"),
        (Blocks, "b", "no gradient reaches b"),
        (Blocks, "y", "no gradient reaches C"),
        (Halves, "x", "gradient of x"),
        (Halves, "b", "gradient of b"),
    ],
)
def test_kronecker_sum_looks_at_every_gradient(kind, what, message):
    layer = kind(6, 9, n=3)
    assert_equals_kronecker_sum(layer)
    layer.what = what
    with torch.no_grad():
        assert_equals_kronecker_sum(layer)
    with pytest.raises(AssertionError, match=message):
        assert_equals_kronecker_sum(layer)


def test_kronecker_sum():
    layer = PHMLinear(6, 9, n=3)
    assert_equals_kronecker_sum(layer)
    assert_equals_kronecker_sum(layer, torch.randn(2, 3, 6))
    assert not layer.bias.any()
    assert all(p.grad is None for p in layer.parameters())
    assert_equals_kronecker_sum(PHMLinear(6, 9, n=3, bias=False, learn_rule=False))
    with pytest.raises(AssertionError, match="not the Kronecker sum"):
        assert_equals_kronecker_sum(IgnoresTheBias(6, 9, n=3))
    with pytest.raises(AssertionError, match="not the Kronecker sum"):
        assert_equals_kronecker_sum(Transposed(6, 9, n=3))
    with pytest.raises(AssertionError, match="no gradient reaches C"):
        assert_equals_kronecker_sum(BlocksTheRule(6, 9, n=3))
    with pytest.raises(AssertionError, match="gradient of C"):
        assert_equals_kronecker_sum(NegatesTheGradient(6, 9, n=3))


class Stale(nn.Linear):
    """Keeps its transposed weight for ever, or until the version counter moves."""

    def __init__(self, watch: bool):
        super().__init__(3, 3)
        self.watch, self.kept = watch, None

    def forward(self, x):
        key = (self.weight._version, self.weight.data_ptr()) if self.watch else 0
        if self.kept is None or self.kept[0] != key:
            self.kept = key, self.weight.detach().T.clone()
        return x @ self.kept[1] + self.bias


def test_never_stale():
    x = torch.randn(2, 3)
    assert_never_stale(nn.Linear(3, 3), x)
    with pytest.raises(AssertionError, match=r"did not follow an in-place edit of weight"):
        assert_never_stale(Stale(watch=False), x)
    with pytest.raises(AssertionError, match=r"did not follow an in-place edit through .data of weight"):
        assert_never_stale(Stale(watch=True), x)
    assert_never_stale(Stale(watch=True), x, uncounted=False)
    layer = PHMLinear(4, 4, n=2).train()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    assert_never_stale(layer, torch.randn(2, 4))
    assert layer.training
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name])


def test_never_stale_leaves_a_layer_that_fails_as_it_was():
    layer = nn.Sequential(Stale(watch=False), nn.Dropout()).train()
    layer[1].eval()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    with pytest.raises(AssertionError, match="did not follow"):
        assert_never_stale(layer, torch.randn(2, 3))
    assert [module.training for module in layer.modules()] == [True, True, False]
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name])


class ForgetsTheBias(nn.Linear):
    def reset_parameters(self):
        nn.init.ones_(self.weight)


class WritesHalf(nn.Linear):
    def reset_parameters(self):
        nn.init.ones_(self.bias)
        with torch.no_grad():
            self.weight[::2] = 1


def test_resets():
    assert_resets_everything(nn.Linear(4, 4))
    with pytest.raises(AssertionError, match="4 entries of bias"):
        assert_resets_everything(ForgetsTheBias(4, 4))
    with pytest.raises(AssertionError, match="8 entries of weight"):
        assert_resets_everything(WritesHalf(4, 4))


def test_seeds():
    assert_seed_fixes_parameters(lambda: nn.Linear(3, 3))
    other = torch.Generator().manual_seed(0)

    def from_another_generator():
        layer = nn.Linear(3, 3)
        with torch.no_grad():
            layer.weight.uniform_(generator=other)
        return layer

    with pytest.raises(AssertionError, match="weight differs"):
        assert_seed_fixes_parameters(from_another_generator)


@pytest.mark.parametrize("attributes", [True, False])
def test_equivariance(attributes):
    data = graph(attributes=attributes)
    assert_permutation_equivariant(add_neighbours, *data)
    with pytest.raises(AssertionError, match="renaming the nodes changes more"):
        assert_permutation_equivariant(lambda x, e, a, p: x * torch.arange(len(x))[:, None], *data)
    with pytest.raises(AssertionError, match="renaming the nodes changes more"):
        assert_permutation_equivariant(
            lambda x, e, a, p: x + torch.arange(1.0, 1 + e.shape[1]) @ x[e[0]], *data
        )  # the order of the edges


def test_a_wrong_layer_is_found_in_every_draw():
    """Of two nodes every other permutation is the identity, which finds nothing."""
    x, edge_index = torch.randn(2, 4), torch.tensor([[0], [1]])
    for _ in range(20):
        with pytest.raises(AssertionError, match="renaming the nodes changes more"):
            assert_permutation_equivariant(lambda x, e, a, p: x * torch.arange(len(x))[:, None], x, edge_index)
        with pytest.raises(AssertionError, match="output of the graph"):
            assert_permutation_invariant(lambda x, e, a, p: x[:1], x, edge_index)
    assert_permutation_equivariant(add_neighbours, torch.randn(1, 4), torch.zeros(2, 0, dtype=torch.long))


@pytest.mark.parametrize("attributes", [True, False])
def test_invariance(attributes):
    data = graph(attributes=attributes)
    assert_permutation_invariant(pool, *data)
    with pytest.raises(AssertionError, match="output of the graph"):
        assert_permutation_invariant(lambda x, e, a, p: x[:1], *data)


@pytest.mark.parametrize("attributes", [True, False])
def test_batches(attributes):
    graphs = [graph(5, 9, attributes), graph(1, 0, attributes), graph(3, 4, attributes)]
    assert_batch_equals_one_by_one(pool, graphs)
    assert_batch_equals_one_by_one(add_neighbours, graphs)
    with pytest.raises(AssertionError, match="change one another"):
        assert_batch_equals_one_by_one(lambda *g: pool(*g) - g[0].mean(0), graphs)
