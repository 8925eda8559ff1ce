"""The fast path of training on a GPU; needs neither rdkit, ogb, lightning nor data, and less than a minute.

On a bare machine: ``python -m pytest --noconftest -c /dev/null tests/integration/test_fast_path.py``.
"""

from __future__ import annotations

import contextlib
import copy
import os

import pytest
import torch
from torch_geometric.data import Data

from phcgnn.data import GraphStore, StoreMetadata
from phcgnn.models import PHCGNN
from phcgnn.nn import kernels
from phcgnn.training.captured import CapturedStep
from phcgnn.training.config import TrainingConfig
from phcgnn.training.prepare import prepare

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # what torch's compiler warns of is not ours
]

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used

STILL = {"dropout": 0.0, "downstream_dropout": 0.0}
NETWORKS = {
    "sum": {"skip": "previous"},
    "sum, n=5": {"n": 5, "width": 45, "downstream": (25,)},
    "dense": {"dense": True},
    "softmax": {"aggregation": "softmax"},
    "mean": {"aggregation": "mean", "pooling": "mean", "mp_mlp": False},
    "max": {"aggregation": "max", "pooling": "max", "skip": "concat"},
    "pna": {"aggregation": "pna", "degrees": (2, 5, 3)},
}


@pytest.fixture(scope="module")
def store():
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for _ in range(160):
        nodes = int(torch.randint(8, 30, (), generator=generator))
        chain = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
        edges = torch.cat([chain, chain.flip(0), torch.randint(nodes, (2, 4), generator=generator)], 1)
        x = torch.randint(0, 28, (nodes, 1), generator=generator)
        kinds = torch.randint(0, 4, (edges.shape[1], 1), generator=generator)
        graphs.append(Data(x=x, edge_index=edges, edge_attr=kinds, y=x.float().mean().reshape(1, 1)))
    metadata = StoreMetadata(
        name="chains", task="regression", targets=("y",), metric="mae", node_features=(28,), edge_features=(4,)
    )
    return GraphStore.from_pyg(graphs, metadata=metadata, splits={"train": torch.arange(160)}).to("cuda")


@contextlib.contextmanager
def matrix_products(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def build(store, settings=None, *, precision="fp32", fuse=False, compile=True, seed=0, wish=None):
    torch.manual_seed(seed)
    network = PHCGNN(
        **{
            "node_features": (28,),
            "edge_features": (4,),
            "n": 4,
            "width": 64,
            "layers": 4,
            "downstream": (32,),
            **settings,
        },
        device="cuda",
    ).train()
    network.validate = False
    config = TrainingConfig(batch_size=32, lr=1e-3, lambda1=1e-2, precision=precision, standardise=True)
    return prepare(store, network, config, compile=compile, fuse=fuse, kernels=wish)


def epoch(prepared, lr=1e-4):
    with kernels.use(isinstance(prepared.step, CapturedStep)):  # the plain path by torch's operations alone
        return torch.stack([torch.stack(prepared.step(batch, lr)) for batch in prepared.loader])


def weights(prepared):
    return torch.cat([p.detach().flatten().double() for p in prepared.step.model.parameters()])


def require_fast(prepared):
    assert isinstance(prepared.step, CapturedStep), prepared.plain
    assert prepared.step.reason is None
    assert prepared.step.recorded


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_gives_what_the_plain_path_gives(store, settings):
    settings = {**settings, **STILL}
    fast, plain = build(store, settings), build(store, settings, compile=False)
    for _ in range(2):
        torch.testing.assert_close(epoch(fast), epoch(plain), rtol=1e-2, atol=1e-3)
    require_fast(fast)
    for name, value in fast.step.state_dict()["model"].items():
        if "running" in name or "beta" in name:
            torch.testing.assert_close(value, plain.step.state_dict()["model"][name], rtol=0.02, atol=0.02, msg=name)


@pytest.mark.parametrize("wish", [True, False, None])
@pytest.mark.parametrize("settings", [NETWORKS["sum, n=5"], NETWORKS["softmax"], NETWORKS["mean"]])
def test_with_kernels_and_without(store, settings, wish):
    lines = []
    fast, plain = build(store, {**settings, **STILL}, wish=wish), build(store, {**settings, **STILL}, compile=False)
    fast.step.say = lines.append
    torch.testing.assert_close(epoch(fast), epoch(plain), rtol=1e-2, atol=1e-3)
    require_fast(fast)
    assert kernels.why_not(torch.device("cuda")) is None
    assert not any("anew" in line for line in lines), lines
    assert set(fast.step.seconds) == ({"with kernels", "without kernels"} if wish is None else set())
    assert wish is None or fast.step.uses_kernels == wish


@pytest.mark.parametrize(
    "precision, tolerance, fuse",
    [("fp32", 5e-3, False), ("fp32", 5e-3, True), ("tf32", 3e-2, False), ("bf16", 0.1, False), ("bf16", 0.1, True)],
)
def test_every_precision_compiled_or_not(store, precision, tolerance, fuse):
    with matrix_products(precision):
        fast = build(store, STILL, precision=precision, fuse=fuse)
        plain = build(store, STILL, compile=False)  # always float32
        torch.testing.assert_close(epoch(fast), epoch(plain), rtol=tolerance, atol=tolerance)
        require_fast(fast)
        assert not fuse or fast.step._update is not None, "the compiled function was given up"


def test_gradients_are_those_of_the_plain_path(store):
    fast, plain = build(store, STILL), build(store, STILL, compile=False)
    left, right = next(iter(fast.loader)), next(iter(plain.loader))
    fast.step._adopt(left)
    fast.step._differentiate()
    found = [p.grad.clone() for p in fast.step.model.parameters()]
    plain.step.differentiate(right, 0.0)
    expected = [p.grad.clone() for p in plain.step.model.parameters()]
    found, expected = (torch.cat([g.flatten().double() for g in gs]) for gs in (found, expected))
    assert (found - expected).norm() <= 0.02 * expected.norm()  # mostly where a ReLU falls on the other side of 0


def test_dropout_is_drawn_anew_and_from_the_seed(store):
    settings = {"dropout": 0.3, "downstream_dropout": 0.3}
    for fuse in (False, True):
        losses = []
        for _ in range(2):
            prepared = build(store, settings, fuse=fuse)
            batch = next(iter(prepared.loader))
            losses.append(torch.stack([prepared.step(batch, 0.0)[0] for _ in range(3)]))
            require_fast(prepared)
        assert losses[0].unique().numel() == 3
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-4)


def test_nothing_waits_for_the_device(store):
    prepared = build(store, {"aggregation": "softmax"})
    epoch(prepared)
    require_fast(prepared)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in prepared.loader:
            prepared.step(batch, 5e-4)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("when", ["always", "in the capture alone"])
def test_work_that_waits_leaves_a_plain_step_that_trains(store, when):
    fast, plain = (build(store, {"dropout": 0.3}, compile=compile) for compile in (True, False))
    differentiate, outer = fast.step.step.differentiate, torch.cuda.current_stream()

    def wait(batch, lr):
        if when == "always":
            float(torch.ones(1, device="cuda"))
        elif torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()  # CUDA gives the capture up
        return differentiate(batch, lr)

    fast.step.step.differentiate = wait
    fast.step.tolerance = None
    found = epoch(fast)
    assert fast.step.path.startswith("plain: ")
    assert when != "always" or "synchronizing" in fast.step.reason
    assert torch.cuda.current_stream() == outer
    assert found.isfinite().all()
    assert epoch(plain).isfinite().all()  # dropout draws from the same generator


@pytest.mark.parametrize("first, second", [("fast", "fast"), ("plain", "fast"), ("fast", "plain")])
def test_a_run_goes_on_on_either_path(store, first, second):
    paths = {"fast": True, "plain": False}
    whole = build(store, STILL, compile=paths[second])
    for _ in range(2):
        expected = epoch(whole)
    one, other = build(store, STILL, compile=paths[first]), build(store, STILL, compile=paths[second], seed=1)
    epoch(one)
    other.step.load_state_dict(copy.deepcopy(one.step.state_dict()))
    other.loader.load_state_dict(one.loader.state_dict())
    torch.testing.assert_close(epoch(other), expected, rtol=1e-2, atol=1e-3)


def test_deterministic_runs_give_the_same_bits(store):
    torch.use_deterministic_algorithms(True)
    try:
        found = []
        for _ in range(2):
            prepared = build(store, {"dropout": 0.1})
            epoch(prepared)
            epoch(prepared)
            require_fast(prepared)
            found.append(weights(prepared))
        assert torch.equal(*found)
    finally:
        torch.use_deterministic_algorithms(False)
