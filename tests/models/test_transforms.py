"""torch.compile, torch.export, autocast, float64, functional_call, and moves between devices."""

from __future__ import annotations

import io

import pytest
import torch
from torch.export import Dim
from torch_geometric.data import Batch, Data

from phcgnn import PHCGNN

SMALL = {"node_features": (5, 3), "edge_features": (4, 2), "n": 2, "width": 8, "layers": 2, "downstream": (6,)}
CASES = {
    "sum": {},
    "softmax": {"aggregation": "softmax", "skip": "previous"},
    "max": {"aggregation": "max", "skip": "concat"},
    "pna": {"aggregation": "pna", "degrees": (1, 5, 3)},
    "mean": {"aggregation": "mean", "edge_features": 2, "node_features": None},
    "sum readout": {"pooling": "mean", "share_rule": True},
    "node": {"task": "node", "norm": "whitening"},
}


def tensors(settings, sizes=((5, 8), (1, 0), (4, 7))):
    kinds = {**SMALL, **settings}
    nodes, edges = sum(v for v, _ in sizes), sum(e for _, e in sizes)

    def features(kind, rows):
        if kind is None:
            return torch.empty(rows, 0)
        if isinstance(kind, int):
            return torch.randn(rows, kind)
        return torch.stack([torch.randint(c, (rows,)) for c in kind], dim=1)

    ptr = torch.tensor([0] + [v for v, _ in sizes]).cumsum(0)
    edge_index = torch.cat([torch.randint(v, (2, e)) + p for (v, e), p in zip(sizes, ptr, strict=False)], dim=1)
    return features(kinds["node_features"], nodes), edge_index, features(kinds["edge_features"], edges), ptr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own doing
@pytest.mark.filterwarnings("ignore:.*torch._prims_common.check:FutureWarning")  # Inductor's own
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_compile_with_dynamic_shapes(settings):
    torch._dynamo.reset()
    model = PHCGNN(**{**SMALL, **settings})
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    for sizes in (((5, 8), (2, 3), (4, 7)), ((6, 9), (7, 30))):
        inputs = tensors(settings, sizes)
        expected = model(*inputs)
        wanted = torch.autograd.grad(expected.sum(), list(model.parameters()), allow_unused=True)
        actual = compiled(*inputs)
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
        got = torch.autograd.grad(actual.sum(), list(model.parameters()), allow_unused=True)
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), model(*inputs), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_export_with_dynamic_shapes(settings):
    model = PHCGNN(**{**SMALL, **settings}).eval()
    nodes, edges, graphs = Dim("nodes", min=2), Dim("edges", min=2), Dim("graphs", min=3)
    shapes = ({0: nodes}, {1: edges}, {0: edges}, {0: graphs})
    program = torch.export.export(model, tensors(settings), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for sizes in (((5, 8), (2, 3), (4, 7), (1, 0)), ((6, 9), (7, 30))):
        inputs = tensors(settings, sizes)
        torch.testing.assert_close(loaded(*inputs), model(*inputs))


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_autocast(settings):
    model = PHCGNN(**{**SMALL, **settings})
    inputs = tensors(settings)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(*inputs)
    assert y.isfinite().all()
    y.float().sum().backward()
    assert all(p.grad is None or (p.grad.dtype == p.dtype and p.grad.isfinite().all()) for p in model.parameters())
    model.eval()
    with torch.no_grad():
        exact = model(*inputs)
        with torch.autocast("cpu", torch.bfloat16):
            near = model(*inputs)
    torch.testing.assert_close(near.float(), exact, atol=0.1 * float(exact.abs().max()) + 0.05, rtol=0.1)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types(settings, dtype):
    model = PHCGNN(**{**SMALL, **settings}, dtype=dtype)
    y = model(*tensors(settings))
    assert y.dtype == dtype
    moved = PHCGNN(**{**SMALL, **settings}).to(dtype)
    assert {p.dtype for p in moved.parameters()} == {p.dtype for p in model.parameters()}
    assert moved(*tensors(settings)).dtype == dtype


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_functional_call(settings):
    model = PHCGNN(**{**SMALL, **settings}).eval()
    inputs = tensors(settings)
    parameters = dict(model.named_parameters())
    doubled = {name: 2 * value.detach() for name, value in parameters.items()}
    expected = model(*inputs)
    there = torch.func.functional_call(model, doubled, inputs)
    assert not torch.allclose(there, expected)
    gradients = torch.func.grad(lambda p: torch.func.functional_call(model, p, inputs).sum())(
        {name: value.detach() for name, value in parameters.items()}
    )
    wanted = torch.autograd.grad(expected.sum(), list(parameters.values()), allow_unused=True)
    for name, want in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(gradients[name], torch.zeros_like(gradients[name]) if want is None else want)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.mul_(2)
        torch.testing.assert_close(model(*inputs), there)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_cuda_gives_what_the_cpu_gives(settings):
    model = PHCGNN(**{**SMALL, **settings}).eval()
    inputs = tensors(settings)
    expected = model(*inputs)
    moved = model.cuda()(*(value.cuda() for value in inputs))
    torch.testing.assert_close(moved.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("settings", [{}, {"aggregation": "softmax"}], ids=["sum", "softmax"])
def test_cuda_graph_of_a_training_step(settings):
    model = PHCGNN(**{**SMALL, **settings}).cuda()
    model.validate = False
    inputs = [value.cuda() for value in tensors(settings)]

    def step():
        model.zero_grad(set_to_none=False)
        model(*inputs).sum().backward()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    replayed = [p.grad.clone() for p in model.parameters()]
    step()
    for got, parameter in zip(replayed, model.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, atol=1e-4, rtol=1e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_bad_values_on_cuda_are_an_error_and_no_assertion_of_the_device():
    model = PHCGNN(**SMALL).cuda().eval()
    x, edge_index, edge_attr, ptr = (value.cuda() for value in tensors({}))
    for bad, name in (
        ((x + 5, edge_index, edge_attr, ptr), "`x` holds the value"),
        ((x, edge_index + 9, edge_attr, ptr), "`edge_index` holds the node"),
        ((x, edge_index, edge_attr - 9, ptr), "`edge_attr` holds the value"),
        ((x, edge_index, edge_attr, ptr + 1), "`ptr` must rise"),
    ):
        with pytest.raises(ValueError, match=name):
            model(*bad)
    torch.cuda.synchronize()
    assert model(x, edge_index, edge_attr, ptr).isfinite().all()


def test_a_batch_object_compiles_to_the_same():
    model = PHCGNN(**SMALL).eval()
    x, edge_index, edge_attr, ptr = tensors({})
    batch = Batch.from_data_list([Data(x=x, edge_index=edge_index, edge_attr=edge_attr)])
    torch.testing.assert_close(model(batch), model(x, edge_index, edge_attr, torch.tensor([0, 10])))
    assert ptr[-1] == 10
