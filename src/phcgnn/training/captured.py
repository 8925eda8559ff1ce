"""A training step that is recorded once and then replayed: the fast path on a GPU."""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn, optim
from torch_geometric.data import Batch

from phcgnn.data.batching import unpad
from phcgnn.models import PHCGNN
from phcgnn.nn import ComponentDropout, batched_weights, kernels
from phcgnn.training.closeness import NOTHING, TOLERANCES, Tolerance, distance, limit_of, require_close
from phcgnn.training.recorder import CudaRecorder, DeviceLost, Recorder, Work, first_line
from phcgnn.training.snapshot import Snapshot
from phcgnn.training.step import TrainingStep

__all__ = ["CapturedStep"]

READ = ("x", "edge_index", "edge_attr", "ptr", "rowptr", "y", "weight", "node_mask", "graph_mask")
"""What a step reads of a batch."""

MOVES = 0.5
"""How far a replayed update may lie from the eager one, as a share of it. Adam makes a gradient that is nothing but
rounding, as that of a bias before a norm, as large an update as any other, so this catches what is wholly wrong."""


ROUNDS = 5
"""So often are recordings timed, in turn."""


@dataclass(frozen=True)
class _Recording:
    """A step that can be replayed: what does it, what it reads that nothing else owns, and how it was made."""

    replay: Work
    held: object
    limits: Tolerance | None
    kernels: bool


class CapturedStep:
    """A :class:`TrainingStep` on padded batches of one shape, recorded at the first and replayed from then on.

    A step is forward, loss, penalties, backward, clipping and update; recorded are all of them, with the learning rate
    and the batch as tensors that stay where they are. Batches that are not padded take the plain step. Norms leave the
    ghosts out, so both give the same but for rounding, and the states of both are interchangeable.

    Before it records, it takes the first batch without dropout by the fast path, by the plain one and in float64; loss
    and gradients of the fast one may not lie much farther from float64 than those of the plain one. After it has
    recorded, it compares a replay with the same step unrecorded, with dropout, and the loss of the next batch likewise.
    Where our own kernels (:mod:`phcgnn.nn.kernels`) can be used, it does all that with them and without, and keeps what
    is replayed faster; what it compares with has none of them.

    Where a check fails, or recording does, it goes on without kernels, then without ``compile``; where that fails too,
    :attr:`reason` says why and every step is plain. Weights, optimizer, running statistics and random generators are
    put back to where they were before.

    Args:
        step: The step. Its optimizer must be Adam or AdamW; it gets its learning rate as a tensor.
        recorder: What records. (default: a CUDA graph)
        compile: What makes the function that updates the nodes of a layer faster, e.g. ``torch.compile``.
        tolerance: How far off is never too far; None checks nothing.
        kernels: Whether our own kernels are used, as far as they can be. (default: where they are found to be faster)
        say: Told what happens, in one line each.
    """

    def __init__(
        self,
        step: TrainingStep,
        *,
        recorder: Recorder | None = None,
        compile: Callable[[Callable[..., Tensor]], Callable[..., Tensor]] | None = None,
        tolerance: Tolerance | None = TOLERANCES["fp32"],
        kernels: bool | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not isinstance(step.model, PHCGNN) or type(step.optimizer) not in (optim.Adam, optim.AdamW):
            raise TypeError(
                "CapturedStep: expected a PHCGNN and Adam or AdamW, "
                f"got {type(step.model).__name__} and {type(step.optimizer).__name__}."
            )
        self.step, self.tolerance, self.say = step, tolerance, say
        like = next(step.model.parameters())
        self.device = like.device
        self.recorder = CudaRecorder(self.device) if recorder is None else recorder
        self.reason: str | None = None
        self.seconds: dict[str, float] = {}
        """Those of a replay, ``with kernels`` and ``without kernels``, where both were timed."""
        self._wish, self._uses, self._taken = kernels, False, 0
        self._update = None if compile is None else compile(step.model.update)
        self._lr = torch.zeros((), device=self.device)
        self._counted = torch.zeros(2, device=self.device, dtype=torch.promote_types(like.dtype, torch.float32))
        self._static: Batch | None = None
        self._replay: Work | None = None
        self._held: object = None
        """Tensors that a replay reads and nothing else here owns."""
        self._limits: Tolerance | None = None
        self._later = 0
        """Batches replayed since recording."""
        self._own_optimizer()

    @property
    def model(self) -> PHCGNN:
        """The network that is trained."""
        return cast(PHCGNN, self.step.model)

    @property
    def optimizer(self) -> optim.Optimizer:
        """What updates it."""
        return self.step.optimizer

    @property
    def recorded(self) -> bool:
        """Whether padded batches are replayed."""
        return self._replay is not None

    @property
    def compiled(self) -> bool:
        """Whether what is replayed was compiled."""
        return self.recorded and self._update is not None

    @property
    def uses_kernels(self) -> bool:
        """Whether what is replayed uses our own kernels."""
        return self.recorded and self._uses

    @property
    def path(self) -> str:
        """Which path steps take: ``recorded``, ``compiled``, ``with kernels``; or ``plain`` and the reason."""
        if not self.recorded:
            return f"plain: {self.reason or 'no batch was padded'}"
        parts = {"recorded": True, "compiled": self.compiled, "with kernels": self.uses_kernels}
        return ", ".join(name for name, so in parts.items() if so)

    def __call__(self, batch: Batch, lr: float) -> tuple[Tensor, Tensor]:
        """Take a step; return what :class:`TrainingStep` returns."""
        if "sizes" not in batch or self.reason is not None:
            return self._take_plain(batch, lr)
        if self._replay is None:
            self._begin(batch, lr)
            return self(batch, lr)
        self.step.set_learning_rate(lr)
        self._fill(batch)
        self._later += 1
        if self._later == 2 and self._limits is not None and not self._agrees(self._replay, self._limits):
            return self(batch, lr)
        self._replay()
        total, count = self._counted.clone().unbind()
        return total, count

    def forward(self, batch: Batch) -> Tensor:
        """Apply the network, as it is."""
        return self.step.forward(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return what the plain step would."""
        state = self.step.state_dict()
        groups = [
            {**group, "lr": float(group["lr"]), "capturable": False} for group in state["optimizer"]["param_groups"]
        ]
        return {**state, "optimizer": {**state["optimizer"], "param_groups": groups}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state of this or of a plain step; what was recorded is forgotten."""
        self.step.load_state_dict(state)
        self._own_optimizer()
        self._replay = None

    def _own_optimizer(self) -> None:
        """Make the learning rate a tensor, which a recording can read anew."""
        for group in self.optimizer.param_groups:
            self._lr.fill_(float(group["lr"]))
            group["lr"], group["capturable"] = self._lr, self.device.type == "cuda"
        # steps ahead of a recording, and of batches that do not fit, are no oversight
        self.optimizer._warned_capturable_if_run_uncaptured = True

    def _take_plain(self, batch: Batch, lr: float) -> tuple[Tensor, Tensor]:
        return self.step(batch, lr)

    def _begin(self, batch: Batch, lr: float) -> None:
        begun = time.monotonic()
        if self._update is not None:
            self.say("the training step is compiled and recorded, which takes a while once")
        before, usable = Snapshot(self.model, self.optimizer), True
        try:
            self.step.set_learning_rate(lr)
            self._adopt(batch)
            self._keep(self._record_both(batch, before))
        except DeviceLost:
            usable = False
            raise
        except Exception as error:  # whatever it is, the plain path does not need it
            self._give_up(error)
        else:
            how = "compiled and recorded" if self.compiled else "recorded"
            times = ", ".join(f"{name} {seconds * 1e3:.3g} ms" for name, seconds in self.seconds.items())
            self.say(
                f"the step is {how}{' with kernels' * self._uses} for batches of {len(batch.graph_mask)} graphs, "
                f"{len(batch.node_mask)} nodes and {batch.edge_index.shape[1]} edges "
                f"({time.monotonic() - begun:.1f} s{'; a replay takes ' * bool(times)}{times})"
            )
        finally:
            if usable:
                before.restore()
                self.optimizer.zero_grad(set_to_none=True)

    def _record_both(self, batch: Batch, before: Snapshot) -> list[_Recording]:
        """Record the step with kernels, if they are wanted and it has any, and without, if that may be better."""
        found: list[_Recording] = []
        wish = False if kernels.refused() else self._wish
        if wish is None and torch.are_deterministic_algorithms_enabled():
            wish = True  # times differ from run to run, and so would the bits
        for uses in (False,) if wish is False else (True, False):
            try:
                found.append(self._record_once(batch, before, uses))
            except DeviceLost:
                raise
            except Exception as error:
                if found:  # one that works is enough; anew, for a capture that failed may take its generator from it
                    return [self._record_once(batch, before, found[0].kernels)]
                if not (uses and self._taken):
                    raise
                self.say(f"recording anew without kernels, with which it failed ({first_line(error)})")
            if found and (wish is True or not self._taken):  # without any taken, there is nothing to leave out
                break
        return found

    def _record_once(self, batch: Batch, before: Snapshot, uses: bool) -> _Recording:
        """Check and record the step, with kernels or without, and put everything back."""
        self._uses, self._taken = uses, 0
        try:
            limits = None if self.tolerance is None else self._require_close_to_plain(batch, self.tolerance)
            replay, held = self._record(before, limits)
        except DeviceLost:
            raise
        except Exception:
            before.restore()
            raise
        before.restore()
        return _Recording(replay, held, limits, uses and self._taken > 0)

    def _keep(self, found: list[_Recording]) -> None:
        """Keep the recording that is done in the least time."""
        best, self.seconds = found[0], {}
        if len(found) > 1:
            times: list[list[float]] = [[] for _ in found]
            try:
                for _ in range(ROUNDS):
                    for recording, seconds in zip(found, times, strict=True):
                        seconds.append(self.recorder.seconds(recording.replay))
            except DeviceLost:
                raise
            except Exception as error:  # both are checked, so either will do
                self.say(f"which is faster was not found out ({first_line(error)})")
            else:
                medians = [statistics.median(seconds) for seconds in times]
                names = [f"with{'' if recording.kernels else 'out'} kernels" for recording in found]
                self.seconds = dict(zip(names, medians, strict=True))
                best = found[medians.index(min(medians))]
        self._replay, self._held, self._limits, self._uses = best.replay, best.held, best.limits, best.kernels
        self._later = 0

    def _give_up(self, error: Exception) -> None:
        """Go on without kernels, without compilation, or without recording where there is neither."""
        reason, used = first_line(error), self._uses and self.recorded
        self._replay = self._held = self._limits = None
        self._uses, self.seconds = False, {}
        if used:
            self._wish = False
            self.say(f"recording anew without kernels, with which it failed ({reason})")
        elif self._update is None:
            self.reason = reason
            self.say(f"the plain path is taken, for recording the step failed ({reason})")
        else:
            self._update = None
            self.say(f"recording anew without compilation, with which it failed ({reason})")

    def _adopt(self, batch: Batch) -> None:
        """Make the tensors that every batch is copied to."""
        self._static = copy.copy(batch)
        mapping = {name: batch[name].clone() for name in READ if name in batch}
        self._static._store._mapping = {"edges_sorted": True, **mapping}
        if "x" not in mapping:
            self._static.num_nodes = len(batch.node_mask)

    def _fill(self, batch: Batch) -> None:
        static = cast(Batch, self._static)
        names = [name for name in READ if name in static]
        for name in names:
            if batch[name].shape != static[name].shape:
                raise ValueError(
                    f"CapturedStep: `{name}` has shape {tuple(batch[name].shape)}, recorded was "
                    f"{tuple(static[name].shape)}; give batches of one loader with pad=True."
                )
        torch._foreach_copy_([static[name] for name in names], [batch[name] for name in names])

    def _differentiate(self) -> tuple[Tensor, Tensor]:
        model, plain = self.model, self.model.update
        model.update = plain if self._update is None else self._update
        try:
            with kernels.use(self._uses) as used, batched_weights(model), warnings.catch_warnings():
                # Dynamo looks for the gradient of every tensor that it finds in a module, of those built there too
                warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
                warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")  # fp32 was asked for
                return self.step.differentiate(cast(Batch, self._static), self._lr)
        finally:
            model.update = plain
            self._taken += used.taken

    def _work(self) -> None:
        """Take the step on the tensors that stay where they are."""
        counted = self._differentiate()
        self.optimizer.step()
        self._counted.copy_(torch.stack(counted))

    def _require_close_to_plain(self, batch: Batch, tolerance: Tolerance) -> Tolerance:
        """Compare the fast and the plain path with float64, without dropout; return how far either may be off."""
        without = unpad(batch, of_nodes=self.model.config.task == "node")
        if "rowptr" in without:
            del without.rowptr
        with kernels.use(False), _without_dropout(self.model):
            loss, gradients, exist = self._look(self.step, self._differentiate)
            plain_loss, plain, plainly = self._look(self.step, lambda: self.step.differentiate(without, self._lr))
            try:
                true_loss, truth = self._differentiate_exactly(without)
            except torch.OutOfMemoryError:
                self.say("the fast path is compared with the plain one alone, as memory is short of one in float64")
                true_loss, truth = plain_loss, plain
        limits = Tolerance(
            limit_of("loss", distance([plain_loss], [true_loss]), tolerance.loss),
            limit_of("gradient", distance(plain, truth), tolerance.gradient),
        )
        require_close("the loss", [loss], [true_loss], limits.loss)
        require_close("the gradient", gradients, truth, limits.gradient)
        self._require_alike(gradients, truth, exist, plainly)
        return limits

    def _look(
        self, step: TrainingStep, differentiate: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, list[Tensor], list[bool]]:
        """Return the mean loss, the gradients, and which parameters have one."""
        found: list[tuple[Tensor, list[Tensor], list[bool]]] = []

        def look() -> None:
            total, count = differentiate()
            exist = [p.grad is not None for p in step.model.parameters()]
            found.append((total / count.clamp_min(1e-12), _gradients(step.model), exist))

        self.recorder.ahead(look)
        return found[0]

    def _differentiate_exactly(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """Return the mean loss and the gradients in float64."""
        exact = TrainingStep(
            copy.deepcopy(self.model).double(),
            optim.SGD([torch.zeros(1, requires_grad=True)]),
            self.step.objective,
            scaler=self.step.scaler,
            gradient_clip=self.step.gradient_clip,
        )
        wide = copy.copy(batch)
        for name in ("y", "weight"):
            if name in wide and wide[name].is_floating_point():
                wide[name] = wide[name].double()
        loss, gradients, _ = self._look(exact, lambda: exact.differentiate(wide, self._lr))
        return loss, gradients

    def _require_alike(
        self, gradients: list[Tensor], truth: list[Tensor], exist: list[bool], plainly: list[bool]
    ) -> None:
        """Require that the same parameters have a gradient on both paths, and none of 0 where there is something."""
        sizes = torch.stack([torch.stack([g.double().norm() for g in part]) for part in (gradients, truth)]).tolist()
        least = NOTHING * math.hypot(*sizes[1])
        names = [name for name, _ in self.model.named_parameters()]
        for name, size, true, one, other in zip(names, *sizes, exist, plainly, strict=True):
            if one != other:
                raise ArithmeticError(f"{name} has a gradient on the {'fast' if one else 'plain'} path alone")
            if size == 0 and true > least:
                raise ArithmeticError(f"the gradient of {name} is 0, but should not be")

    def _agrees(self, replay: Work, limits: Tolerance) -> bool:
        """Whether a replay's loss of the batch now in place is that of the same step unrecorded; it changes nothing.

        The batch that was recorded cannot tell what was kept of it by mistake; this one can.
        """
        before = Snapshot(self.model, self.optimizer)
        try:
            expected: list[Tensor] = []
            self.recorder.ahead(lambda: expected.extend(self._differentiate()))
            before.restore()
            replay()
            require_close("a later replay's loss", [self._counted], [torch.stack(expected)], limits.loss)
        except torch.OutOfMemoryError:
            self.say("the replay is compared on the batch alone that was recorded, as memory is short")
        except ArithmeticError as error:
            self._give_up(error)
            return False
        finally:
            before.restore()
            self.optimizer.zero_grad(set_to_none=True)
        return True

    def _record(self, before: Snapshot, limits: Tolerance | None) -> tuple[Work, object]:
        """Record the step, after doing it once ahead, and compare the first replay with that.

        Returns:
            What replays it, and what that reads and nothing else here owns.
        """
        parameters = list(self.model.parameters())
        before.restore()
        self.recorder.ahead(self._work)
        expected, moved = _gradients(self.model), [p.detach().clone() for p in parameters]
        counted = self._counted.clone()
        before.restore()
        self.recorder.ahead(self._work, strict=True)  # once a capture has begun, it would be too late for an error
        before.restore()
        scaler, y = self.step.scaler, cast(Batch, self._static).y
        held = None if scaler is None else scaler.tensors(y.device, y.dtype)
        replay = self.recorder.record(self._work)
        before.restore()
        if limits is not None:
            start = [p.detach().clone() for p in parameters]
            replay()
            require_close("a replay's loss", [self._counted], [counted], limits.loss)
            require_close("a replay's gradient", _gradients(self.model), expected, limits.gradient)
            took, wanted = (torch._foreach_sub(values, start) for values in ([p.detach() for p in parameters], moved))
            require_close("a replay's update", list(took), list(wanted), MOVES)
        return replay, held


@contextlib.contextmanager
def _without_dropout(*models: nn.Module) -> Iterator[None]:
    layers = [module for model in models for module in model.modules() if isinstance(module, ComponentDropout)]
    kept = [layer.p for layer in layers]
    try:
        for layer in layers:
            layer.p = 0.0
        yield
    finally:
        for layer, p in zip(layers, kept, strict=True):
            layer.p = p


def _gradients(model: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in model.parameters()]
