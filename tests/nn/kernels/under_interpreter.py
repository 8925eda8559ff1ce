"""The kernels against torch's operations, on the CPU under Triton's interpreter; `test_kernels.py` runs this file.

By hand: ``TRITON_INTERPRET=1 python -m pytest tests/nn/kernels/under_interpreter.py``, all of it in a minute.
"""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from phcgnn.experiments.bench import synthetic_store
from phcgnn.models import PHCGNN
from phcgnn.nn import Adjacency, SoftmaxAggregation, kernels
from phcgnn.nn.adjacency import sum_rows
from phcgnn.nn.kernels.lists import EdgeLists
from phcgnn.nn.kernels.softmax import softmax_by_lists, softmax_of_messages, softmax_of_neighbours
from phcgnn.nn.kernels.sums import sum_by_lists
from phcgnn.training.config import TrainingConfig
from phcgnn.training.prepare import prepare

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))
recorders = importlib.import_module("recorders")

GRAPHS = {  # nodes, edges, width
    "some": (7, 20, 5),
    "width 225": (9, 30, 225),
    "width 304": (9, 30, 304),
    "width 1": (12, 40, 1),
    "no edges": (4, 0, 7),
    "one node": (1, 0, 3),
    "no nodes": (0, 0, 3),
    "no channels": (3, 5, 0),
    "loops": (1, 3, 7),
    "hundreds of edges a node": pytest.param(3, 600, 2, marks=pytest.mark.slow),
    "more edges than nodes": (3, 40, 7),
}


def edges_of(nodes, edges):
    """Random edges; the last node has none where there are several."""
    return torch.randint(max(nodes - (nodes > 1), 1), (2, edges))


def grads(y, inputs, cotangent):
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    return torch.autograd.grad(y, inputs, cotangent.to(y.dtype), **options)


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=["int64", "int32"])
@pytest.mark.parametrize("nodes, edges, width", GRAPHS.values(), ids=GRAPHS)
def test_sum(nodes, edges, width, index, dtype, tol):
    lists = [part.to(index) for part in Adjacency.from_edges(edges_of(nodes, edges), nodes)[:4]]
    x = torch.randn(nodes, width, dtype=dtype, requires_grad=True)
    with kernels.use(True) as used:
        y = sum_rows(x, *lists)
    with kernels.use(False) as unused:
        expected = sum_rows(x, *lists)
    assert (used.taken, unused.taken) == (1, 0)
    torch.testing.assert_close(y, expected, **tol)
    cotangent = torch.randn(width, nodes).t()  # not contiguous
    with kernels.use(True) as unused:  # backward is by what forward was by
        torch.testing.assert_close(grads(y, x, cotangent), grads(expected, x, cotangent), **tol)
    assert unused.taken == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_added_in_float32(dtype):
    lists = Adjacency.from_edges(torch.stack([torch.zeros(300), torch.arange(300) % 2]).long(), 2)[:4]
    x = torch.ones(2, 7, dtype=dtype, requires_grad=True)
    y = sum_rows(x, *lists)
    assert y.dtype == dtype
    assert y.unique().item() == 150
    y.backward(torch.ones_like(y))
    assert x.grad[0].unique().item() == 300  # not 256


def test_any_0_1_matrix_and_gradients_of_both_orders():
    index, ptr = torch.tensor([0, 2, 1]), torch.tensor([0, 2, 3])
    lists = index, ptr, torch.tensor([0, 1, 0]), torch.tensor([0, 1, 2, 3])
    assert sum_by_lists(torch.eye(3), *lists).tolist() == [[1, 0, 1], [0, 1, 0]]
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: sum_by_lists(x, *lists), x)
    torch.autograd.gradgradcheck(lambda x: sum_by_lists(x, *lists).square(), x)
    y = sum_by_lists(x, *lists)
    batched = torch.autograd.grad(y, x, torch.stack([torch.ones_like(y), torch.zeros_like(y)]), is_grads_batched=True)
    assert batched[0][:, 0, 0].tolist() == [1, 0]


def test_registration_of_the_sum():
    lists = Adjacency.from_edges(edges_of(5, 12), 5)[:4]
    for width in (3, 0):
        torch.library.opcheck(sum_by_lists, (torch.randn(5, width, requires_grad=True), *lists))


EDGES = {"nothing": 0, "one category": 1, "three categories": 3, "numbers": -3}


def softmax_inputs(nodes, edges, width, features, dtype):
    """Return nodes, temperature, lists, table and codes."""
    lists = EdgeLists.from_edges(edges_of(nodes, edges), nodes)
    h = torch.randn(nodes, width, dtype=dtype, requires_grad=True)
    beta = torch.tensor(-1.3, dtype=dtype, requires_grad=True)
    if features == 0:
        return h, beta, lists, None, None
    codes = torch.randint(4, (edges, features)) + 4 * torch.arange(features) if features > 0 else None
    codes = torch.randn(edges, -features, dtype=dtype) if codes is None else codes
    table = torch.randn(4 * features if features > 0 else -features, width, dtype=dtype, requires_grad=True)
    return h, beta, lists, table, codes


def textbook(h, beta, lists, table, codes):
    """By the definition, node by node, in float64."""
    messages = h.double()[lists.source]
    if table is not None:
        hot = codes.double() if codes.is_floating_point() else F.one_hot(codes, len(table)).sum(1).double()
        messages = messages + hot @ table.double()
    parts = [messages[lists.target == node] for node in range(len(h))]
    weights = [torch.softmax(beta.double() * part, 0) for part in parts]
    sums = [(part * weight).sum(0) for part, weight in zip(parts, weights, strict=True)]
    return torch.stack(sums) if sums else h.double() * beta


def closeness(dtype):
    return {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}


@pytest.mark.parametrize("features", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("nodes, edges, width", GRAPHS.values(), ids=GRAPHS)
def test_softmax_of_neighbours(nodes, edges, width, features, dtype):
    h, beta, lists, table, codes = softmax_inputs(nodes, edges, width, features, dtype)
    inputs = [h, beta] if table is None else [h, beta, table]
    y, expected = softmax_of_neighbours(h, beta, lists, table, codes), textbook(h, beta, lists, table, codes)
    assert y.dtype == dtype
    torch.testing.assert_close(y, expected.to(dtype), **closeness(dtype))
    cotangent = torch.randn(nodes, width, dtype=dtype)
    found, right = (grads(value, inputs, cotangent) for value in (y, expected))
    for one, other in zip(found, right, strict=True):
        assert (one - other).norm() <= {torch.float32: 2e-5, torch.float64: 1e-12}[dtype] * (1 + other.norm())


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=["int64", "int32"])
@pytest.mark.parametrize("nodes, edges, width", [GRAPHS["width 225"], GRAPHS["no edges"]])
def test_softmax_of_messages(nodes, edges, width, index, dtype):
    lists = EdgeLists(*(p if p is None else p.to(index) for p in EdgeLists.from_edges(edges_of(nodes, edges), nodes)))
    plain = SoftmaxAggregation().to(dtype)
    nn.init.constant_(plain.beta, 0.7)
    x = torch.randn(edges, width, dtype=dtype, requires_grad=True)
    y = softmax_of_messages(x, plain.beta, lists)
    expected = plain(x, lists.target.long(), dim_size=nodes)
    torch.testing.assert_close(y, expected, **closeness(dtype))
    cotangent, inputs = torch.randn(nodes, width), (x, plain.beta)
    torch.testing.assert_close(grads(y, inputs, cotangent), grads(expected, inputs, cotangent), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [1e4, -1e4, 1e30])
def test_logits_of_any_size_give_weights(size):
    lists = EdgeLists.from_edges(torch.tensor([[0, 1, 2], [0, 0, 1]]), 3)
    h = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    beta = torch.tensor(size, requires_grad=True)
    y = softmax_of_neighbours(h, beta, lists)
    assert y.flatten().tolist() == [2.0 if size > 0 else 1.0, 3.0, 0.0]
    y.sum().backward()
    assert h.grad.flatten().tolist() == ([0.0, 1.0, 1.0] if size > 0 else [1.0, 0.0, 1.0])
    assert beta.grad.item() == 0


def test_what_is_not_finite_stays_in_its_set():
    lists = EdgeLists.from_edges(torch.tensor([[0, 1, 2], [0, 0, 1]]), 3)
    y = softmax_of_neighbours(torch.tensor([[1.0], [math.nan], [3.0]]), torch.tensor(1.0), lists)
    assert y[0].isnan().item()
    assert y[1:].flatten().tolist() == [3.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("features", [0, 2, -2])
def test_gradients_of_both_orders_of_the_softmax(features):
    h, beta, lists, table, codes = softmax_inputs(3, 5, 1, features, torch.float64)
    inputs = (h, beta) if table is None else (h, beta, table)

    def apply(h, beta, table=None):
        return softmax_of_neighbours(h, beta, lists, table, codes)

    torch.autograd.gradcheck(apply, inputs)
    torch.autograd.gradgradcheck(lambda *parts: apply(*parts).square(), inputs)
    y = apply(*inputs)
    many = torch.randn(2, *y.shape, dtype=y.dtype)
    batched = torch.autograd.grad(y, inputs, many, is_grads_batched=True, retain_graph=True)
    for found, expected in zip(batched, zip(*(grads(y, inputs, one) for one in many), strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("features", [2, *(pytest.param(f, marks=pytest.mark.slow) for f in (0, -2))])
def test_registration_of_the_softmax(features):
    h, beta, lists, table, codes = softmax_inputs(4, 9, 2, features, torch.float32)
    ends = lists.ptr, lists.target, lists.source, lists.leaving, lists.leaving_ptr
    torch.library.opcheck(softmax_by_lists, (h, table, beta, codes, *ends))
    x = torch.randn(9, 2, requires_grad=True)
    torch.library.opcheck(softmax_by_lists, (x, None, beta, None, lists.ptr, lists.target, None, None, None))


def test_types_may_differ():
    h, beta, lists, table, codes = softmax_inputs(6, 20, 5, 2, torch.float32)
    narrow = h.detach().bfloat16().requires_grad_()
    y, expected = (softmax_of_neighbours(v, beta, lists, table, codes) for v in (narrow, narrow.float()))
    assert y.dtype == torch.float32
    assert torch.equal(y, expected)
    y.sum().backward()
    assert narrow.grad.dtype == torch.bfloat16


NETWORKS = {
    "sum": ("zinc", {"aggregation": "sum"}),
    "mean": ("zinc", {"aggregation": "mean"}),
    "softmax, three features": ("molhiv", {"aggregation": "softmax"}),
    "softmax, real features": ("ppa", {"aggregation": "softmax", "node_source": "edge-sum"}),
    "softmax, no features": ("zinc", {"aggregation": "softmax", "edge_features": None}),
    "softmax, a large table": ("large", {"aggregation": "softmax"}),
}


@pytest.mark.parametrize("csr", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("data, settings", NETWORKS.values(), ids=NETWORKS)
def test_a_network_on_a_padded_batch(data, settings, csr):
    store = synthetic_store("zinc" if data == "large" else data, 3, nodes=6, edges=14)
    features = {"node_features": store.metadata.node_features, "edge_features": store.metadata.edge_features}
    if data == "large":
        features["edge_features"] = (40,)
    still = {"n": 3, "width": 9, "layers": 2, "downstream": (6,), "dropout": 0.0, "downstream_dropout": 0.0}
    model = PHCGNN(**{**features, **still, **settings}, dtype=torch.float64)
    batch = next(iter(store.loader(2, pad=True, cut=False, csr=csr, split="train")))
    if not csr:
        order = torch.randperm(batch.edge_index.shape[1])
        batch.edge_index, batch.edge_attr = batch.edge_index[:, order], batch.edge_attr[order]
        batch.edges_sorted = False
    found = []
    for wanted in (True, False):
        model.zero_grad()
        with kernels.use(wanted) as used, recorders.Watch():
            y = model(batch)[batch.graph_mask]
            y.square().sum().backward()
        assert (used.taken > 0) == wanted
        found.append((y.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    torch.testing.assert_close(*[y for y, _ in found], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(*[g for _, g in found], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"aggregation": "softmax"}], ids=["sum", "softmax"])
def test_a_recorded_step_is_that_of_the_plain_path(settings):
    """The operations are on the tape, as a CUDA graph would have their kernels; both ways it trains the same."""
    still = {"n": 3, "width": 9, "layers": 1, "downstream": (6,), "dropout": 0.0, "downstream_dropout": 0.0}
    states = []
    for wish in (True, False):
        store = synthetic_store("zinc", 9, nodes=6, edges=14)
        torch.manual_seed(0)
        network = PHCGNN(node_features=(28,), edge_features=(4,), **still, **settings).double().train()
        store.y = store.y.double()
        config = TrainingConfig(batch_size=3, lr=1e-3)
        prepared = prepare(store, network, config, kernels=wish, recorder=recorders.Tape())
        for batch in prepared.loader:
            prepared.step(batch, 1e-3)
        assert prepared.path == ("recorded, with kernels" if wish else "recorded")
        states.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
    assert (states[0] - states[1]).norm() < 1e-6 * states[1].norm()


def test_transforms_take_the_operations_of_torch():
    lists = Adjacency.from_edges(edges_of(5, 12), 5)[:4]
    x = torch.randn(5, 3)
    with kernels.use(True) as used:
        torch.func.grad(lambda x: sum_rows(x, *lists).sum())(x)
        with torch.autograd.forward_ad.dual_level():
            assert not kernels.takes(x)
    assert used.taken == 0
    assert not kernels.takes(x.long())


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_compiled_whole(backend):
    torch._dynamo.reset()
    lists = Adjacency.from_edges(edges_of(5, 12), 5)[:4]
    x = torch.randn(5, 3, requires_grad=True)
    with kernels.use(True):
        expected = sum_rows(x, *lists)
    calls = []

    def count(graph, inputs):
        calls.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(lambda x: sum_rows(x, *lists) * 2, backend=count if backend == "eager" else backend)
    with kernels.use(True):
        y = compiled(x)
    torch.testing.assert_close(y, 2 * expected)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(2 * expected.sum(), x))
    if backend == "eager":
        assert "phcgnn.sum_by_lists.default" in calls or any("sum_by_lists" in call for call in calls)


def test_lists_that_lie_apart_in_memory():
    h, beta, lists, table, codes = softmax_inputs(7, 20, 5, 3, torch.float64)
    apart = type(lists)(*(None if part is None else torch.stack([part, part], 1)[:, 0] for part in lists))
    inputs = [h, beta, table]
    found, expected = (softmax_of_neighbours(h, beta, each, table, codes) for each in (apart, lists))
    assert not apart.target.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    cotangent = torch.randn_like(found)
    for a, b in zip(grads(found, inputs, cotangent), grads(expected, inputs, cotangent), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mean", [1.0, 5.0, 20.0])
def test_gradients_of_narrow_types_do_not_suffer_from_a_rounded_result(mean, dtype):
    lists = EdgeLists.from_edges(edges_of(40, 160), 40)
    h = (mean + 0.3 * torch.randn(40, 32)).to(dtype).requires_grad_()
    beta = torch.tensor(1.0, requires_grad=True)
    y = softmax_of_neighbours(h, beta, lists)
    assert y.dtype == dtype
    cotangent = torch.randn_like(y)
    exact = [h.detach().double().requires_grad_(), beta.detach().double().requires_grad_()]
    expected = grads(textbook(*exact, lists, None, None), exact, cotangent)
    for a, b in zip(grads(y, [h, beta], cotangent), expected, strict=True):
        assert (a.double() - b).norm() < 0.02 * b.norm()


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # of numpy, which interprets
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_logit_that_is_minus_infinity_has_no_weight_wherever_it_stands(order):
    lists = EdgeLists.from_edges(torch.tensor([order, [2, 2]]), 3)
    h = torch.tensor([[1e30], [1.0], [0.0]], requires_grad=True)
    y = softmax_of_neighbours(h, torch.tensor(-1e30), lists)
    assert y[2].item() == 1.0
    assert y.sum().isfinite()
    assert grads(y, [h], torch.ones_like(y))[0].isfinite().all()


def test_a_nan_stays_with_the_set_and_the_categories_that_read_it():
    lists = EdgeLists.from_edges(torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]]), 4)
    h = torch.tensor([[float("nan")], [1.0], [2.0], [3.0]], requires_grad=True)
    table = torch.zeros(4, 1, requires_grad=True)
    y = softmax_of_neighbours(h, torch.tensor(1.0), lists, table, torch.tensor([[0], [1], [2], [3]]))
    assert y.isnan().flatten().tolist() == [True, False, False, False]
    of_table = grads(y, [table], torch.ones_like(y))[0]
    assert of_table.isnan().flatten().tolist() == [True, True, False, False]


def test_transforms_of_the_table_alone():
    h, beta, _, table, _ = softmax_inputs(5, 9, 3, 2, torch.float64)
    seen = []
    with kernels.use(True):
        assert kernels.takes(h, beta, table)
        torch.func.grad(lambda value: (seen.append(kernels.takes(h, beta, value)), value.sum())[1])(table.detach())
    assert seen == [False]
