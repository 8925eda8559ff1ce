"""The captured step on the CPU: a tape stands in for the CUDA graph."""

from __future__ import annotations

import contextlib
import copy
import re

import pytest
import torch
from torch import nn, optim
from torch._dynamo.testing import CompileCounterWithBackend

from phcgnn.data import PaddedShape
from phcgnn.data.batching import unpad
from phcgnn.models import PHCGNN
from phcgnn.nn import Adjacency, kernels
from phcgnn.nn.kernels import switch
from phcgnn.training.captured import CapturedStep
from phcgnn.training.closeness import Tolerance, limit_of
from phcgnn.training.objective import Objective
from phcgnn.training.recorder import DeviceLost
from phcgnn.training.run import model_config
from phcgnn.training.schedule import build_optimizer
from phcgnn.training.step import TrainingStep
from phcgnn.training.targets import Scaler, _as_tensors

from .conftest import MODEL, make_store, recorders

LR = 2.0**-7  # the same in float32
STORE = make_store()
STORE.y = STORE.y.double()


def build(settings=None, optimizer="adam", store=STORE, **objective):
    torch.manual_seed(0)
    model = PHCGNN.from_config(model_config(store.metadata, {**MODEL, **(settings or {})}), dtype=torch.float64)
    model.validate = False
    made = build_optimizer(optimizer, model.parameters(), lr=0.1, weight_decay=0.01)
    for group in made.param_groups:
        group["eps"] = 1e-3  # else Adam makes large updates of what is nothing but rounding, as a bias before a norm
    how = Objective(**{"loss": "l1", "lambda1": 0.1, "lambda2": 0.1, **objective})
    return TrainingStep(model.train(), made, how, scaler=Scaler.fit(STORE.y), gradient_clip=2.0)


def captured(step, **options):
    return CapturedStep(step, **{"recorder": recorders.Tape(), **options})


def loader(pad=True, store=STORE, **options):
    return store.loader(
        8, shuffle=True, generator=1, split="train", **{"pad": pad, "cut": False, "csr": pad, **options}
    )


def follow(one, other, batches, lrs=(LR, LR / 2, LR * 2), watch=recorders.Watch):
    """Take the same steps with both, from the same random numbers."""
    for at, (left, right) in enumerate(batches):
        torch.manual_seed(at)
        with watch():
            expected = one(left, lrs[at % len(lrs)])
        state = torch.get_rng_state()
        torch.manual_seed(at)
        with watch():
            found = other(right, lrs[at % len(lrs)])
        assert torch.equal(torch.get_rng_state(), state)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    return at + 1


def assert_same_state(one, other, **tol):
    left, right = one.state_dict(), other.state_dict()
    assert left["model"].keys() == right["model"].keys()
    for name, value in left["model"].items():
        torch.testing.assert_close(right["model"][name], value, msg=name, **tol)
    assert left["optimizer"]["param_groups"] == right["optimizer"]["param_groups"]
    for at, value in left["optimizer"]["state"].items():
        torch.testing.assert_close(right["optimizer"]["state"][at], value, **tol)


NETWORKS = {
    "sum": {"layers": 2},
    "softmax": {"aggregation": "softmax", "skip": "previous"},
    "mean": {"aggregation": "mean", "pooling": "mean", "mp_mlp": False},
    "max": {"aggregation": "max", "pooling": "max", "skip": "concat"},
    "pna": {"aggregation": "pna", "degrees": (2, 5, 3)},
    "shared rule": {"share_rule": True, "layers": 2},
    "dense": {"dense": True},
    "element dropout": {"dropout_kind": "element", "pooling": "sum"},
}


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_replays_the_plain_step_dropout_included(settings):
    plain, fast = build(settings), captured(build(settings))
    lines = []
    fast.say = lines.append
    for _ in range(2):
        follow(plain, fast, zip(loader(), loader(), strict=True))
    assert fast.recorded
    assert fast.reason is None
    assert len(lines) == 1
    assert "the step is recorded for batches of 9 graphs, 48 nodes" in lines[0]
    assert_same_state(plain, fast, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("clip", [0.1, None])
def test_gives_what_batches_without_padding_give(optimizer, clip):
    still = {"dropout": 0.0, "downstream_dropout": 0.0}
    plain, fast = build(still, optimizer), captured(build(still, optimizer))
    plain.gradient_clip = fast.step.gradient_clip = clip
    for _ in range(3):
        follow(plain, fast, zip(loader(pad=False), loader(), strict=True))
    assert fast.recorded
    assert_same_state(plain, fast, rtol=1e-6, atol=1e-8)


def test_batches_that_do_not_fit_are_taken_plainly_in_between():
    shape = loader().shape
    narrow = PaddedShape(shape.graphs, shape.nodes * 2 // 3, shape.edges)
    still = {"dropout": 0.0, "downstream_dropout": 0.0}
    plain, fast = build(still), captured(build(still))
    kinds = {"sizes" in batch for _ in range(4) for batch in loader(pad=narrow)}
    assert kinds == {True, False}
    both, whole = loader(pad=narrow), loader(pad=False)
    for _ in range(3):
        follow(plain, fast, zip(whole, both, strict=True))
    assert fast.recorded
    assert_same_state(plain, fast, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("scale", ["lr", "one"])
@pytest.mark.parametrize("task", ["classification", "multiclass"])
def test_other_tasks_and_weights(task, scale):
    store = make_store(task, weights=True)
    if task == "classification":
        store.y = store.y.double()
    store.weights = store.weights.double()
    how = {"loss": "bce", "positive_weights": torch.tensor([2.0, 0.5]).double()}
    if task == "multiclass":
        how = {"loss": "cross_entropy", "class_weights": torch.tensor([0.5, 2.0, 1.0]).double()}
    steps = [build(store=store, penalty_scale=scale, **how) for _ in range(2)]
    for step in steps:
        step.scaler = None
    plain, fast = steps[0], captured(steps[1])
    follow(plain, fast, zip(loader(store=store), loader(store=store), strict=True))
    assert fast.recorded
    assert_same_state(plain, fast, rtol=1e-7, atol=1e-8)


def test_recording_changes_nothing_it_should_not():
    fast = captured(build())
    for batch in loader():
        before, random = copy.deepcopy(fast.state_dict()), torch.get_rng_state()
        with torch.no_grad():
            fast._begin(batch, LR)
        break
    assert fast.reason is not None  # without gradients there is nothing to record
    assert torch.equal(torch.get_rng_state(), random)
    fast = captured(build())
    fast._begin(batch, LR)
    assert fast.recorded
    assert torch.equal(torch.get_rng_state(), random)
    after = fast.state_dict()
    for name, value in after["model"].items():
        assert torch.equal(value, before["model"][name]), name
    assert all((v == 0).all() for state in after["optimizer"]["state"].values() for v in state.values())
    assert all(p.grad is None for p in fast.model.parameters())


@pytest.mark.parametrize("first", ["plain", "fast"])
@pytest.mark.parametrize("second", ["plain", "fast"])
def test_states_are_interchangeable(first, second):
    def make(kind):
        return captured(build()) if kind == "fast" else build()

    whole, one, other = build(), make(first), make(second)
    batches = list(loader())
    follow(whole, one, zip(batches[:2], batches[:2], strict=True))
    follow(build(), other, zip(batches, batches, strict=True))  # what it had learned, and recorded, is given up
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    follow(whole, other, zip(batches, batches, strict=True))
    assert_same_state(whole, other, rtol=1e-7, atol=1e-8)


def test_resuming_gives_the_same_bits():
    batches = [*loader(), *loader()]
    torch.manual_seed(5)
    whole = captured(build())
    for at, batch in enumerate(batches):
        if at == 3:
            kept, random = copy.deepcopy(whole.state_dict()), torch.get_rng_state()
        whole(batch, LR)
    resumed = captured(build())
    resumed.load_state_dict(kept)
    torch.set_rng_state(random)
    for batch in batches[3:]:
        resumed(batch, LR)
    assert_same_state(whole, resumed, rtol=0, atol=0)


def test_what_is_off_is_found_and_the_plain_step_taken(monkeypatch):
    lines = []
    fast = captured(build({"layers": 2}), say=lines.append, compile=lambda update: lambda *parts: update(*parts) * 1.01)
    follow(build({"layers": 2}), fast, zip(loader(), loader(), strict=True))
    assert fast.recorded  # without what was wrong
    assert fast.reason is None
    assert "recording anew without compilation, with which it failed (ArithmeticError: the" in lines[1]
    monkeypatch.setattr("phcgnn.training.captured.batched_weights", Scaled)
    fast = captured(build(), say=lines.append)
    follow(build(), fast, zip(loader(), loader(), strict=True))
    assert not fast.recorded
    assert "is off by" in fast.reason
    assert lines[-1].startswith("the plain path is taken, for recording the step failed (ArithmeticError: the ")


class Scaled:
    """Builds wrong weights."""

    def __init__(self, model):
        self.model = model

    def __enter__(self):
        for layer in self.model.modules():
            if hasattr(layer, "dense_weight"):
                layer._built = layer.dense_weight() * 1.01

    def __exit__(self, *error):
        for layer in self.model.modules():
            if hasattr(layer, "dense_weight"):
                layer._built = None


def test_a_replay_that_forgets_the_optimizer_is_found():
    class Forgets(recorders.Tape):
        def record(self, work):
            replay = super().record(work)
            self.operations[:] = [entry for entry in self.operations if "adam" not in str(entry[0])]
            return replay

    fast = captured(build(), recorder=Forgets())
    follow(build(), fast, zip(loader(), loader(), strict=True))
    assert fast.reason.startswith("ArithmeticError: a replay's update is off by 1 of itself")


def test_what_waits_for_the_device_is_not_recorded():
    fast = captured(build({"pooling": "lstm"}), tolerance=None)
    follow(build({"pooling": "lstm"}), fast, zip(loader(), loader(), strict=True))
    assert "waits for the device" in fast.reason


def test_what_waits_is_refused_before_anything_is_recorded():
    class Counts(recorders.Tape):
        recordings = 0

        def record(self, work):
            self.recordings += 1
            return super().record(work)

    recorder = Counts()
    fast = captured(build({"pooling": "lstm"}), tolerance=None, recorder=recorder)
    for batch in loader():
        fast(batch, LR)
    assert "waits for the device" in fast.reason
    assert recorder.recordings == 0


def test_a_recording_that_loses_the_device_ends_the_run():
    class Loses(recorders.Tape):
        def record(self, work):
            raise DeviceLost("start again with --no-compile")

    fast = captured(build(), recorder=Loses())
    with pytest.raises(DeviceLost, match="--no-compile"):
        fast(next(iter(loader())), LR)
    assert fast.reason is None  # no plain step could be taken either


def test_limits_that_zeros_cannot_pass():
    assert limit_of("gradient", 0.0, 0.2) == 0.2
    assert limit_of("gradient", 0.03, 0.2) == pytest.approx(0.3)
    assert limit_of("gradient", 0.186, 0.2) == 0.5  # bf16, where ten times as far would be 1.86
    assert limit_of("gradient", 0.4, 0.2) == 0.8
    for far in (0.5, 2.0, float("nan"), float("inf")):
        with pytest.raises(ArithmeticError, match=r"the plain path's gradient itself is off by .*nothing can be"):
            limit_of("gradient", far, 0.2)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.grad.zero_(), r"the gradient of .* is 0, but should not be"),
        (lambda p: setattr(p, "grad", None), r".* has a gradient on the plain path alone"),
    ],
    ids=["zero", "none"],
)
def test_a_gradient_that_is_missing_is_found_however_small(spoil, message):
    fast = captured(build(), tolerance=Tolerance(0.4, 0.4))
    differentiate = fast._differentiate
    parameters = dict(fast.model.named_parameters())
    sizes = {}

    def forget():
        counted = differentiate()
        if not sizes:
            sizes.update({name: float(p.grad.norm()) for name, p in parameters.items()})
        total = sum(size**2 for size in sizes.values()) ** 0.5
        name = min((n for n in sizes if sizes[n] > 1e-4 * total), key=sizes.get)
        assert sizes[name] < 0.1 * total  # too small to count among all of them
        spoil(parameters[name])
        return counted

    fast._differentiate = forget
    fast(next(iter(loader())), LR)
    assert not fast.recorded
    assert fast.reason.startswith("ArithmeticError")
    assert re.search(message, fast.reason)


def test_what_is_kept_of_the_first_batch_is_found_at_the_next():
    class Keeps(recorders.Tape):
        """Replays the targets of the recorded batch, whatever the batch."""

        def record(self, work):
            replay, targets = super().record(work), fast._static.y
            kept = targets.clone()

            def run():
                now = targets.clone()
                targets.copy_(kept)
                replay()
                targets.copy_(now)

            return run

    lines = []
    fast = captured(build(), recorder=Keeps(), say=lines.append)
    plain = build()
    follow(plain, fast, zip(loader(), loader(), strict=True))
    assert not fast.recorded
    assert fast.reason.startswith("ArithmeticError: a later replay's loss is off by")
    assert fast.path == f"plain: {fast.reason}"
    assert_same_state(plain, fast, rtol=1e-7, atol=1e-8)


def test_memory_too_short_for_float64(monkeypatch):
    def fail(self, batch):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(CapturedStep, "_differentiate_exactly", fail)
    lines = []
    fast = captured(build(), say=lines.append)
    follow(build(), fast, zip(loader(), loader(), strict=True))
    assert fast.recorded
    assert lines[0] == "the fast path is compared with the plain one alone, as memory is short of one in float64"


def test_memory_too_short_for_a_second_look():
    class Short(recorders.Tape):
        recorded = False

        def ahead(self, work, *, strict=False):
            if self.recorded:
                raise torch.OutOfMemoryError("no room")
            super().ahead(work, strict=strict)

        def record(self, work):
            self.recorded = True
            return super().record(work)

    lines = []
    fast, plain = captured(build(), say=lines.append, recorder=Short()), build()
    follow(plain, fast, zip(loader(), loader(), strict=True))
    assert fast.recorded
    assert lines[1] == "the replay is compared on the batch alone that was recorded, as memory is short"
    assert_same_state(plain, fast, rtol=1e-7, atol=1e-8)


def test_which_path_is_taken():
    fast = captured(build(), compile=lambda update: update)
    assert fast.path == "plain: no batch was padded"
    lines = []
    fast.say = lines.append
    batch = next(iter(loader()))
    fast(batch, LR)
    assert (fast.path, fast.compiled) == ("recorded, compiled", True)
    assert lines[-1].startswith("the step is compiled and recorded for batches of 9 graphs")
    fast = captured(build())
    fast(batch, LR)
    assert (fast.path, fast.compiled) == ("recorded", False)


@pytest.fixture
def kernel(monkeypatch):
    """Return what makes the sum over neighbours by a kernel, as far as anybody can tell."""

    def make(factor=1.0):
        plain = Adjacency.sum

        def total(self, x):
            received = plain(self, x)
            if not kernels.wanted():
                return received
            switch._uses[-1].taken += 1
            return received * factor

        monkeypatch.setattr(Adjacency, "sum", total)

    return make


@pytest.mark.parametrize("compile", [None, lambda update: update], ids=["not compiled", "compiled"])
@pytest.mark.parametrize("seconds, path", [((1e-3, 2e-3), "recorded, with kernels"), ((2e-3, 1e-3), "recorded")])
def test_the_faster_of_both_is_kept(kernel, seconds, path, compile):
    kernel()
    lines = []
    plain = build()
    fast = captured(build(), recorder=recorders.Tape(seconds * 5), say=lines.append, compile=compile)
    for _ in range(2):
        with kernels.use(True):
            follow(plain, fast, zip(loader(), loader(), strict=True))
    assert fast.path == path.replace("recorded", "recorded, compiled" if compile else "recorded")
    assert fast.seconds == dict(zip(("with kernels", "without kernels"), seconds, strict=True))
    assert f"with kernels {seconds[0] * 1e3:.3g} ms, without kernels {seconds[1] * 1e3:.3g} ms)" in lines[-1]
    assert_same_state(plain, fast, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("wish", [True, False])
def test_kernels_that_are_asked_for_or_not_are_not_timed(kernel, wish):
    kernel()
    fast = captured(build(), kernels=wish)
    follow(build(), fast, zip(loader(), loader(), strict=True))
    assert fast.uses_kernels == wish
    assert fast.seconds == {}
    fast = captured(build())
    with kernels.use(False):
        follow(build(), fast, zip(loader(), loader(), strict=True))
    assert fast.path == "recorded"


class Clockless(recorders.Tape):
    """A recorder that cannot tell the time."""

    def seconds(self, replay):
        raise torch.OutOfMemoryError("no room for a clock")


def test_an_error_while_timing_costs_no_recording(kernel):
    kernel()
    lines, plain = [], build()
    fast = captured(build(), recorder=Clockless(), say=lines.append)
    follow(plain, fast, zip(loader(), loader(), strict=True))
    assert fast.path == "recorded, with kernels"
    assert fast.seconds == {}
    assert any("which is faster was not found out (OutOfMemoryError: no room for a clock)" in line for line in lines)


class Once(recorders.Tape):
    """A recorder that fails at the second recording."""

    asked = 0

    def record(self, work):
        self.asked += 1
        if self.asked == 2:
            raise torch.OutOfMemoryError("no room for two")
        return super().record(work)


def test_a_second_recording_that_fails_has_the_first_made_anew(kernel):
    kernel()
    plain, recorder = build(), Once()
    fast = captured(build(), recorder=recorder)
    follow(plain, fast, zip(loader(), loader(), strict=True))
    assert fast.path == "recorded, with kernels"
    assert recorder.asked == 3


def test_kernels_are_in_recordings_alone(kernel, monkeypatch):
    kernel()
    fast, batch, seen = captured(build(), kernels=True), next(iter(loader())), []
    fast(batch, LR)
    assert fast.uses_kernels
    usual = Adjacency.sum
    monkeypatch.setattr(Adjacency, "sum", lambda self, x: (seen.append(kernels.wanted()), usual(self, x))[1])
    fast.forward(batch)
    fast(unpad(batch), LR)
    assert seen == [False, False]


def test_nothing_is_timed_where_the_bits_shall_be_the_same(kernel, monkeypatch):
    kernel()
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    fast = captured(build())
    fast(next(iter(loader())), LR)
    assert fast.path == "recorded, with kernels"
    assert fast.seconds == {}


@pytest.mark.parametrize("wish", [True, None])
def test_wrong_kernels_are_left_out_before_compilation_is(kernel, wish):
    kernel(1.5)
    lines = []
    fast = captured(build(), kernels=wish, say=lines.append, compile=lambda update: update)
    for batch in loader():
        fast(batch, LR)
    assert fast.path == "recorded, compiled"
    assert lines[1].startswith("recording anew without kernels, with which it failed (ArithmeticError: the ")


def test_kernels_are_tried_again_without_compilation(kernel):
    kernel()
    lines = []
    fast = captured(
        build({"layers": 2}),
        recorder=recorders.Tape((1e-3, 2e-3) * 5),
        say=lines.append,
        compile=lambda update: lambda *parts: update(*parts) * 1.01,
    )
    for batch in loader():
        fast(batch, LR)
    assert fast.path == "recorded, with kernels"
    assert [line.split(",")[0] for line in lines[1:3]] == [
        "recording anew without kernels",
        "recording anew without compilation",
    ]


def test_kernels_whose_later_replay_is_wrong_are_left_out(kernel):
    class Spoils(recorders.Tape):
        """Adds to the loss at every replay behind the first, of the recording with kernels."""

        recordings = 0

        def record(self, work):
            self.recordings += 1
            replay, first, times = super().record(work), self.recordings == 1, 0

            def run():
                nonlocal times
                times += 1
                replay()
                if first and times > 1:
                    fast._counted.add_(1.0)

            return run

    kernel()
    lines = []
    fast = captured(build(), recorder=Spoils(), kernels=True, say=lines.append)
    for batch in loader():
        fast(batch, LR)
    assert fast.path == "recorded"
    assert "recording anew without kernels, with which it failed (ArithmeticError: a later replay's" in lines[1]


def test_what_a_replay_reads_is_held():
    fast = captured(build())
    batch = next(iter(loader()))
    fast(batch, LR)
    _as_tensors.cache_clear()
    held = fast._held
    assert torch.equal(held[0], torch.tensor(fast.step.scaler.mean, dtype=torch.float64))
    read = {part.data_ptr() for entry in fast.recorder.operations for part in _flat(entry)}
    assert {part.data_ptr() for part in held} <= read


def _flat(entry):
    return [part for part in torch.utils._pytree.tree_leaves(entry[1:3]) if isinstance(part, torch.Tensor)]


def test_no_warning_of_steps_that_are_not_recorded():
    step = build()
    step.optimizer._warned_capturable_if_run_uncaptured = False
    assert captured(step).optimizer._warned_capturable_if_run_uncaptured


def test_batches_of_another_shape_are_refused():
    fast = captured(build())
    for batch in loader():
        fast(batch, LR)
    wide = STORE.batch([0, 1], shape=PaddedShape(9, 64, 200), csr=True)
    with pytest.raises(ValueError, match=r"`x` has shape \(64, 1\), recorded was \(48, 1\); give batches of"):
        fast(wide, LR)


def test_other_models_and_optimizers_are_refused():
    step = build()
    step.optimizer = optim.SGD(step.model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="expected a PHCGNN and Adam or AdamW, got PHCGNN and SGD"):
        CapturedStep(step, recorder=recorders.Again())
    step = build()
    step.model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="got Linear and Adam"):
        CapturedStep(step, recorder=recorders.Again())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own doing
def test_one_compilation_serves_all_layers():
    torch._dynamo.reset()
    counts = CompileCounterWithBackend("aot_eager")
    settings, lines = {"layers": 4, "skip": "initial", "dropout": 0.0, "downstream_dropout": 0.0}, []
    plain = build(settings)
    fast = captured(
        build(settings),
        recorder=recorders.Again(),
        tolerance=None,
        say=lines.append,
        compile=lambda update: torch.compile(update, backend=counts, fullgraph=True, dynamic=False),
    )
    follow(plain, fast, zip(loader(), loader(), strict=True), watch=contextlib.nullcontext)
    assert fast.recorded
    assert ["recorded" in line for line in lines] == [True, True]
    assert counts.frame_count == 1
