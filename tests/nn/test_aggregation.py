from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch_geometric.nn import aggr

from phcgnn.nn import PHMLinear, PNAAggregation, SoftmaxAggregation
from phcgnn.nn.adjacency import Adjacency
from phcgnn.nn.aggregation import AGGREGATIONS, build_aggregation, reduce_rows, softmax_of_sorted
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


@pytest.mark.parametrize("beta", [1.0, -2.0, 0.0, 300.0])
@pytest.mark.parametrize("edges", [0, 1, 40])
def test_softmax_of_sorted_messages_is_softmax(edges, beta, dtype, tol):
    edge_index = torch.stack([torch.randint(9, (edges,)), torch.randint(7, (edges,)).sort().values])
    adjacency = Adjacency.from_edges(edge_index, 9)  # nodes 7 and 8 hear nobody
    aggregation = SoftmaxAggregation(dtype=dtype)
    with torch.no_grad():
        aggregation.beta.fill_(beta)
    x = torch.randn(edges, 5, dtype=dtype, requires_grad=True)
    y = softmax_of_sorted(x, aggregation.beta, adjacency)
    expected = aggregation(x, edge_index[1], dim_size=9)
    torch.testing.assert_close(y, expected, **tol)
    assert not y[7:].any()
    cotangent, wanted = torch.randn_like(y), (x, aggregation.beta)
    gradients = zip(
        torch.autograd.grad(y, wanted, cotangent), torch.autograd.grad(expected, wanted, cotangent), strict=True
    )
    for found, right in gradients:
        torch.testing.assert_close(found, right, rtol=100 * tol["rtol"], atol=100 * tol["atol"])


def test_softmax_of_sorted_messages_has_second_derivatives():
    edge_index = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 0, 2, 2]])
    adjacency = Adjacency.from_edges(edge_index, 3)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, b: softmax_of_sorted(x, b, adjacency), (x, beta))
    assert torch.autograd.gradgradcheck(lambda x, b: softmax_of_sorted(x, b, adjacency), (x, beta))


def one_node_apart(rows=40, width=3, dtype=torch.float64):
    edges = torch.stack([torch.arange(rows) % 7, torch.arange(rows) // 6])
    return Adjacency.on_host(edges, 7), torch.randn(rows, width, dtype=dtype)


def test_softmax_of_sorted_gradients_for_several_cotangents_at_once():
    adjacency, x = one_node_apart()
    x, beta = x.requires_grad_(), torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    y = softmax_of_sorted(x, beta, adjacency)
    cotangents = torch.randn(4, *y.shape, dtype=y.dtype)
    at_once = torch.autograd.grad(y, (x, beta), cotangents, is_grads_batched=True, retain_graph=True)
    singly = [torch.autograd.grad(y, (x, beta), cotangent, retain_graph=True) for cotangent in cotangents]
    for found, wanted in zip(at_once, zip(*singly, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-10, atol=1e-12)


def test_softmax_of_sorted_messages_in_another_layout():
    adjacency, x = one_node_apart()
    turned = x.t().contiguous().t().requires_grad_()
    x, beta = x.requires_grad_(), torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(softmax_of_sorted(turned, beta, adjacency).square().sum(), (turned, beta))
    wanted = torch.autograd.grad(softmax_of_sorted(x, beta, adjacency).square().sum(), (x, beta))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_softmax_of_sorted_hardly_depends_on_the_other_sets():
    adjacency, x = one_node_apart(dtype=torch.float32)
    beta, far = torch.ones(()), x.clone()
    far[36:] += 50  # of the last set
    apart = softmax_of_sorted(far, beta, adjacency) - softmax_of_sorted(x, beta, adjacency)
    assert float(apart[:6].abs().max()) <= 2 * torch.finfo(torch.float32).eps * float(x.abs().max())
