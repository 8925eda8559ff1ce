from __future__ import annotations

import pytest
import torch

from phcgnn.nn.adjacency import Adjacency, sum_rows

GRAPHS = {
    "some": (7, 20),
    "no edges": (4, 0),
    "one node": (1, 0),
    "no nodes": (0, 0),
    "a loop": (1, 3),
    "more edges than nodes": (3, 50),
}


def dense(edge_index, nodes, dtype):
    matrix = torch.zeros(nodes, nodes, dtype=dtype)
    for source, target in edge_index.T.tolist():
        matrix[target, source] += 1
    return matrix


@pytest.mark.parametrize("nodes, edges", GRAPHS.values(), ids=GRAPHS)
def test_sum_is_the_product_with_the_adjacency_matrix(nodes, edges, dtype, tol):
    edge_index = torch.randint(max(nodes, 1), (2, edges))
    x = torch.randn(nodes, 5, dtype=dtype, requires_grad=True)
    adjacency, matrix = Adjacency.from_edges(edge_index, nodes), dense(edge_index, nodes, dtype)
    y, expected = adjacency.sum(x), matrix @ x
    torch.testing.assert_close(y, expected, **tol)
    cotangent = torch.randn_like(y)
    torch.testing.assert_close(torch.autograd.grad(y, x, cotangent), torch.autograd.grad(expected, x, cotangent), **tol)
    assert adjacency.degree.tolist() == matrix.sum(1).tolist()


def test_order_of_the_edges_does_not_matter():
    edge_index = torch.randint(6, (2, 15))
    x = torch.randn(6, 3)
    shuffled = edge_index[:, torch.randperm(15)]
    torch.testing.assert_close(Adjacency.from_edges(edge_index, 6).sum(x), Adjacency.from_edges(shuffled, 6).sum(x))


def test_indices_of_32_bits():
    edge_index = torch.randint(6, (2, 15))
    x = torch.randn(6, 3)
    narrow = Adjacency.from_edges(edge_index.int(), 6).sum(x)
    assert torch.equal(narrow, Adjacency.from_edges(edge_index, 6).sum(x))


def test_gradients_of_both_orders():
    adjacency = Adjacency.from_edges(torch.randint(5, (2, 12)), 5)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(adjacency.sum, x)
    torch.autograd.gradgradcheck(lambda value: adjacency.sum(value).square(), x)


def test_functional_gradient():
    adjacency = Adjacency.from_edges(torch.tensor([[0, 1], [1, 1]]), 2)
    gradient = torch.func.grad(lambda x: adjacency.sum(x).sum())(torch.randn(2, 3))
    assert torch.equal(gradient, torch.ones(2, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types(dtype):
    adjacency = Adjacency.from_edges(torch.tensor([[0, 1, 2], [1, 1, 0]]), 3)
    x = torch.tensor([[1.0], [2.0], [4.0]], dtype=dtype, requires_grad=True)
    y = adjacency.sum(x)
    y.sum().backward()
    assert y.flatten().tolist() == [4.0, 3.0, 0.0]
    assert x.grad.flatten().tolist() == [1.0, 1.0, 1.0]


def test_gradient_that_is_no_contiguous_tensor():
    adjacency = Adjacency.from_edges(torch.tensor([[0, 1, 2], [1, 1, 0]]), 3)
    x = torch.randn(3, 4, requires_grad=True)
    adjacency.sum(x).sum().backward()  # an expanded scalar
    assert torch.equal(x.grad, torch.ones(3, 4))
    (transposed,) = torch.autograd.grad(adjacency.sum(x).t(), x, torch.ones(4, 3))
    assert torch.equal(transposed, torch.ones(3, 4))


def test_any_0_1_matrix():
    index, ptr = torch.tensor([0, 2, 1]), torch.tensor([0, 2, 3])
    index_t, ptr_t = torch.tensor([0, 1, 0]), torch.tensor([0, 1, 2, 3])
    x = torch.eye(3, requires_grad=True)
    y = sum_rows(x, index, ptr, index_t, ptr_t)
    assert y.tolist() == [[1, 0, 1], [0, 1, 0]]
    y[0].sum().backward()
    assert x.grad.tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("nodes, edges", GRAPHS.values(), ids=GRAPHS)
def test_on_the_host_it_is_the_same(nodes, edges, in_order):
    edge_index = torch.randint(max(nodes, 1), (2, edges))
    if in_order:
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    found, expected = Adjacency.on_host(edge_index, nodes), Adjacency.from_edges(edge_index, nodes)
    if in_order:  # else the edges from a node may come in another order, which no sum can tell
        assert all(torch.equal(a, b) for a, b in zip(found[:5], expected[:5], strict=True))
        assert torch.equal(edge_index[1][found.order], found.target)
    assert torch.equal(found.source, expected.source)
    assert torch.equal(found.degree, expected.degree)
    x, matrix = torch.randn(nodes, 3, dtype=torch.float64), dense(edge_index, nodes, torch.float64)
    torch.testing.assert_close(found.sum(x), matrix @ x)
    torch.testing.assert_close(
        sum_rows(x, found.target, found.target_ptr, found.source, found.source_ptr), matrix.T @ x
    )


@pytest.mark.parametrize("nodes, edges", GRAPHS.values(), ids=GRAPHS)
def test_loops_add_each_node_to_what_it_receives(nodes, edges, dtype, tol):
    edge_index = torch.randint(max(nodes, 1), (2, edges))
    x = torch.randn(nodes, 5, dtype=dtype, requires_grad=True)
    adjacency = Adjacency.from_edges(edge_index, nodes)
    y, expected = adjacency.with_loops().sum(x), x + adjacency.sum(x)
    torch.testing.assert_close(y, expected, **tol)
    cotangent = torch.randn_like(y)
    torch.testing.assert_close(torch.autograd.grad(y, x, cotangent), torch.autograd.grad(expected, x, cotangent), **tol)


def test_edges_that_are_not_sorted_after_all_are_summed_right_on_the_host():
    edges = torch.tensor([[0, 1, 2, 2], [2, 0, 1, 0]])
    rowptr = torch.tensor([0, 2, 3, 4])
    x = torch.tensor([[1.0], [10.0], [100.0]])
    assert Adjacency.on_host(edges, 3, rowptr).sum(x).flatten().tolist() == [110.0, 100.0, 1.0]
