from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch_geometric.nn import aggr

from phcgnn.nn import PHMLinear, PNAAggregation, SoftmaxAggregation
from phcgnn.nn.aggregation import AGGREGATIONS, build_aggregation, reduce_rows
from phcgnn.testing import assert_resets_everything


def test_softmax_equals_the_formula_set_by_set(dtype, tol):
    layer = SoftmaxAggregation(dtype=dtype)
    nn.init.constant_(layer.beta, 1.7)
    x, index = torch.randn(9, 4, dtype=dtype), torch.tensor([0, 3, 3, 0, 1, 3, 4, 4, 0])
    expected = torch.zeros(6, 4, dtype=dtype)
    for row in range(6):
        members = x[index == row]
        if len(members):
            expected[row] = ((1.7 * members).softmax(0) * members).sum(0)
    torch.testing.assert_close(layer(x, index, dim_size=6), expected, **tol)
    order = index.argsort(stable=True)
    ptr = torch.searchsorted(index[order], torch.arange(7))
    torch.testing.assert_close(layer(x[order], ptr=ptr), expected, **tol)


def test_softmax_lies_between_mean_and_maximum():
    x, index = torch.randn(6, 3), torch.zeros(6, dtype=torch.long)
    layer = SoftmaxAggregation()
    nn.init.zeros_(layer.beta)
    torch.testing.assert_close(layer(x, index), x.mean(0, keepdim=True))
    nn.init.constant_(layer.beta, 1e4)
    torch.testing.assert_close(layer(x, index), x.amax(0, keepdim=True))


def test_softmax_gradients_and_size():
    layer = SoftmaxAggregation().double()
    index = torch.tensor([0, 2, 2, 0])
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def call(x, beta):
        return torch.func.functional_call(layer, {"beta": beta}, (x, index))

    torch.autograd.gradcheck(call, (x, layer.beta.detach().clone().requires_grad_()))
    assert layer.beta.shape == ()
    assert_resets_everything(layer)
    assert layer.beta.item() == 1.0
    assert layer(1e3 * x, index).isfinite().all()


def test_pna_equals_the_formula_node_by_node():
    degrees = [1, 2, 3, 4]
    layer = PNAAggregation(
        4, n=2, degrees=degrees, aggregators=("mean", "max"), scalers=("identity", "amplification", "attenuation")
    ).double()
    x, index = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 2, 2])
    mean_log = sum(count * math.log(d + 1) for d, count in enumerate(degrees)) / 10  # weighted by the nodes
    assert layer.mean_log_degree == pytest.approx(mean_log)
    assert layer.mean_degree == pytest.approx((2 + 6 + 12) / 10)
    rows = []
    for node in range(3):
        members = x[index == node]
        log = math.log(len(members) + 1)
        terms = [
            scale * value
            for scale in (1.0, log / mean_log, mean_log / log)
            for value in (members.mean(0), members.amax(0))
        ]
        rows.append(torch.cat([term[p : p + 2] for p in (0, 2) for term in terms]))  # component-major
    torch.testing.assert_close(layer(x, index, dim_size=3), layer.project(torch.stack(rows)))
    assert isinstance(layer.project, PHMLinear)
    assert "mean" in repr(layer)


def test_pna_scalers_at_isolated_nodes_are_finite():
    layer = PNAAggregation(
        4, n=2, degrees=[5, 5], scalers=("identity", "amplification", "attenuation", "linear", "inverse-linear")
    )
    x = torch.randn(2, 4, requires_grad=True)
    y = layer(x, torch.tensor([1, 1]), dim_size=3)
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", [*AGGREGATIONS, "Median", "powermean", "MulAggregation", "lcm"])
def test_every_name_builds_and_keeps_the_width(name):
    layer = build_aggregation(name, 8)
    assert layer(torch.rand(5, 8), torch.tensor([0, 0, 1, 3, 3]), dim_size=4).shape == (4, 8)


def test_an_instance_is_taken_as_it_is():
    layer = aggr.QuantileAggregation(0.3)
    assert build_aggregation(layer, 8) is layer


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: build_aggregation("sofmax", 8), "unknown aggregation 'sofmax'.*Did you mean 'softmax'"),
        (lambda: build_aggregation(3, 8), "named by a string, got 3"),
        (lambda: build_aggregation("quantile", 8), "QuantileAggregation needs `q`.*pass an instance"),
        (lambda: PNAAggregation(8, n=3, degrees=[0, 1]), "`features` must be a multiple of n=3"),
        (lambda: PNAAggregation(8, degrees=[5]), "`degrees` must count the nodes"),
        (lambda: PNAAggregation(8, degrees=[0, -1]), "`degrees` must count the nodes"),
        (lambda: PNAAggregation(8, degrees=[0, 1], scalers=()), "at least one each"),
        (lambda: PNAAggregation(8, degrees=[0, 1], scalers=("linaer",)), "unknown scaler.*Did you mean 'linear'"),
        (lambda: SoftmaxAggregation()(torch.ones(2, 2)[None], torch.zeros(2).long(), dim_size=1), "two-dimensional"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


LEARNED = [
    aggr.LSTMAggregation(4, 4),
    aggr.LSTMAggregation(4, 4, bidirectional=True),
    aggr.GRUAggregation(4, 4),
    aggr.LCMAggregation(4, 4),
    aggr.PatchTransformerAggregation(4, 4, patch_size=3, hidden_channels=4),
    aggr.MultiAggregation(["mean", aggr.LSTMAggregation(4, 4)]),
    aggr.SetTransformerAggregation(4),
    aggr.DeepSetsAggregation(nn.Linear(4, 4), nn.Linear(4, 4)),
    aggr.MedianAggregation(),
    aggr.MulAggregation(),
    aggr.SortAggregation(2),
]


@pytest.mark.parametrize("layer", LEARNED, ids=str)
def test_sets_do_not_change_one_another_and_empty_ones_give_zero(layer):
    layer.eval()
    x, index = torch.randn(9, 4), torch.tensor([2, 0, 2, 2, 4, 2, 0, 2, 4])
    together = reduce_rows(layer, x, index, 6)
    for name in (0, 2, 4):
        rows = x[index == name]
        torch.testing.assert_close(together[name], layer(rows, torch.zeros(len(rows), dtype=torch.long))[0])
    assert together[[1, 3, 5]].eq(0).all()
    nothing = reduce_rows(layer, x[:0], index[:0], 2)
    assert nothing.shape == (2, together.shape[1])
    assert nothing.eq(0).all()


def test_gradients_of_a_recurrent_aggregation():
    layer, index = aggr.GRUAggregation(2, 2).double(), torch.tensor([1, 0, 1, 1])
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: reduce_rows(layer, x, index, 3), (x,))
    reduce_rows(layer, x, index, 3).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_pna_takes_aggregators_that_want_sorted_rows():
    layer = PNAAggregation(4, n=2, degrees=[1, 2, 3], aggregators=("lstm", "set-transformer", "mean")).eval()
    x, index = torch.randn(6, 4), torch.tensor([3, 0, 3, 1, 3, 0])
    order = index.argsort(stable=True)
    torch.testing.assert_close(layer(x, index, dim_size=4), layer(x[order], index[order], dim_size=4))


def test_nothing_to_aggregate_leaves_statistics_alone():
    layer = aggr.DeepSetsAggregation(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 6)).train()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert reduce_rows(layer, torch.empty(0, 4), torch.empty(0, dtype=torch.long), 3).shape == (3, 6)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
