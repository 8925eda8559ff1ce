from __future__ import annotations

import pytest
import torch

from phcgnn.nn import softmax
from phcgnn.nn.adjacency import Adjacency
from phcgnn.nn.aggregation import SoftmaxAggregation
from phcgnn.nn.softmax import softmax_of_sorted


@pytest.fixture(autouse=True, params=[16, 2**21], ids=["many runs", "one run"])
def runs(request, monkeypatch):
    monkeypatch.setattr(softmax, "RUN", request.param)


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
