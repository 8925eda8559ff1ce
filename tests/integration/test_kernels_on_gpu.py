"""Our kernels on a GPU, at the sizes of batches; needs neither rdkit, ogb, lightning nor data.

On a bare machine: ``python -m pytest --noconftest -c /dev/null tests/integration/test_kernels_on_gpu.py``.
"""

from __future__ import annotations

import pytest
import torch

from phcgnn.nn import Adjacency, CategoricalEncoder, ContinuousEncoder, SoftmaxAggregation, kernels
from phcgnn.nn.kernels.lists import EdgeLists
from phcgnn.nn.kernels.softmax import softmax_of_neighbours
from phcgnn.training.recorder import CudaRecorder

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),
]

NODES, EDGES = 3000, 9000
FAR = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}
WIDTHS = [1, 7, 200, 225, 304, 900]


@pytest.fixture(scope="module", autouse=True)
def _there_are_kernels():
    assert kernels.why_not(torch.device("cuda")) is None


@pytest.fixture(scope="module")
def edge_index():
    """Random edges; nodes without any, and one that hears of a thousand."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES - 50, (2, EDGES), generator=generator)
    edges[1, :1000] = 5
    return edges[:, edges[1].argsort(stable=True)].cuda()


def distance(found, expected):
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm().clamp_min(1e-30))


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=["int64", "int32"])
@pytest.mark.parametrize("dtype", FAR, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_sum(edge_index, width, dtype, index):
    lists = [part.to(index) for part in Adjacency.from_edges(edge_index, NODES)[:4]]
    from phcgnn.nn.adjacency import sum_rows

    x = torch.randn(NODES, width, device="cuda").to(dtype).requires_grad_()
    gradient, wide = torch.randn_like(x), x.detach().double().requires_grad_()
    with kernels.use(True) as used:
        y = sum_rows(x, *lists)
    assert used.taken == 1
    with kernels.use(False):
        expected = sum_rows(wide, *lists)
    assert distance(y, expected) < FAR[dtype]
    found = torch.autograd.grad(y, x, gradient, retain_graph=True)[0]
    assert distance(found, torch.autograd.grad(expected, wide, gradient.double())[0]) < FAR[dtype]
    assert torch.equal(found, torch.autograd.grad(y, x, gradient)[0])  # the same bits


@pytest.mark.parametrize("kind", ["nothing", "categories", "numbers", "a large table"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_softmax(edge_index, width, dtype, kind):
    from phcgnn.models.edges import EdgeBatch
    from phcgnn.models.weighing import weigh_neighbours

    torch.manual_seed(0)
    encoder, raw = None, None
    if kind == "numbers":
        encoder, raw = ContinuousEncoder(7, width), torch.rand(EDGES, 7, device="cuda", dtype=dtype)
    elif kind != "nothing":
        cardinalities = (5, 6, 2) if kind == "categories" else (40,)
        encoder = CategoricalEncoder(cardinalities, width)
        raw = torch.stack([torch.randint(c, (EDGES,), device="cuda") for c in cardinalities], 1)
    encoder = None if encoder is None else encoder.to("cuda", dtype)
    aggregation = SoftmaxAggregation(device="cuda", dtype=dtype)
    torch.nn.init.constant_(aggregation.beta, 0.8)
    h = torch.randn(NODES, width, device="cuda", dtype=dtype, requires_grad=True)
    gradient = torch.randn_like(h)
    inputs = [h, aggregation.beta, *(() if encoder is None else encoder.parameters())]
    found = []
    for _ in range(2):
        y = weigh_neighbours(h, aggregation.beta, encoder, EdgeBatch(edge_index, raw, NODES))
        found.append([y, *torch.autograd.grad(y, inputs, gradient)])
    # the same formula by torch's operations, in float64
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    messages = exact[0].index_select(0, edge_index[0])
    if encoder is not None:
        names = [name for name, _ in encoder.named_parameters()]
        raw = raw.double() if kind == "numbers" else raw
        encoder = encoder.double()
        messages = messages + torch.func.functional_call(encoder, dict(zip(names, exact[2:], strict=True)), (raw,))
    aggregation = aggregation.double()
    expected = torch.func.functional_call(
        aggregation, {"beta": exact[1]}, (messages, edge_index[1]), {"dim_size": NODES}
    )
    wanted = [expected, *torch.autograd.grad(expected, exact, gradient.double())]
    for one, other in zip(found[0], wanted, strict=True):
        assert distance(one, other) < 10 * FAR[dtype]
    if kind != "a large table":  # which is embedded first, by torch
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_recording_holds_them(edge_index):
    adjacency = Adjacency.from_edges(edge_index, NODES)
    lists = EdgeLists.from_edges(edge_index, NODES)
    x = torch.randn(NODES, 304, device="cuda", requires_grad=True)
    beta = torch.ones((), device="cuda", requires_grad=True)
    results = {}

    def work():
        with kernels.use(True) as used:
            y = adjacency.sum(x)
            z = softmax_of_neighbours(x, beta, lists)
        assert used.taken == 1
        results["y"], results["gradient"] = y.detach(), torch.autograd.grad(y, x, torch.ones_like(y))[0]
        gradients = torch.autograd.grad(z, (x, beta), torch.ones_like(z))
        results["z"], results["of x"], results["of beta"] = z.detach(), *gradients

    recorder = CudaRecorder(torch.device("cuda"))
    recorder.ahead(work)
    recorder.ahead(work, strict=True)
    replay = recorder.record(work)
    with torch.no_grad():
        x.normal_()
    replay()
    recorded = {name: value.clone() for name, value in results.items()}
    work()
    assert all(torch.equal(recorded[name], results[name]) for name in recorded)
    assert recorder.seconds(replay) > 0
