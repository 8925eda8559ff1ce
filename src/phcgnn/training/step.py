"""One training step: forward, loss, backward, clip, update."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch_geometric.data import Batch

from phcgnn.nn.eager import plain_on_cpu
from phcgnn.training.objective import Objective
from phcgnn.training.parallel import Processes
from phcgnn.training.targets import Scaler

__all__ = ["TrainingStep", "clip_gradients"]


class TrainingStep:
    """Model, optimizer and objective, applied to a batch.

    With several processes the loss of each is its part of the mean over all labels, so that the average of their
    gradients is the gradient that one process with the whole batch has.

    Args:
        model: The network: ``model(batch) -> (G, T)``.
        optimizer: Over its parameters.
        objective: What is made small.
        scaler: Applied to the targets first.
        gradient_clip: Largest norm of the gradient; None leaves it.
        processes: The processes that train together.
        network: The model as Fabric runs it: in its precision, gradients averaged over processes. (default: the model)
        backward: What takes the gradients of a loss, as Fabric's precision wants it. (default: ``loss.backward()``)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        objective: Objective,
        *,
        scaler: Scaler | None = None,
        gradient_clip: float | None = None,
        processes: Processes | None = None,
        network: nn.Module | None = None,
        backward: Callable[[Tensor], None] = Tensor.backward,
    ) -> None:
        self.model, self.optimizer, self.objective = model, optimizer, objective
        self.scaler, self.gradient_clip = scaler, gradient_clip
        self.processes = Processes() if processes is None else processes
        self.network = model if network is None else network
        self.backward = backward

    def __call__(self, batch: Batch, lr: float) -> tuple[Tensor, Tensor]:
        """Take a step; return the sum of the task losses of the batch and the sum of their weights, on the device."""
        self.set_learning_rate(lr)
        counted = self.differentiate(batch, lr)
        self.optimizer.step()
        return counted

    def differentiate(self, batch: Batch, lr: float | Tensor) -> tuple[Tensor, Tensor]:
        """Leave the clipped gradients in the parameters; return what a step returns."""
        targets = batch.y if self.scaler is None else self.scaler.apply(batch.y)
        outputs = self.forward(batch)
        total, count = self.objective.task(outputs, targets, batch.get("weight"))
        loss = total * self.processes.count / self.processes.sum(count.detach()).clamp_min(1e-12)
        penalty = self.objective.penalty(self.model, lr)
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(loss if penalty is None else loss + penalty)
        if self.gradient_clip is not None:
            clip_gradients(self.model.parameters(), self.gradient_clip)
        return total.detach(), count.detach()

    def forward(self, batch: Batch) -> Tensor:
        """Apply the network; return ``(G, T)`` in float32 or wider."""
        outputs: Tensor = self.network(batch)
        return outputs if outputs.dtype == torch.float64 else outputs.float()

    def state_dict(self) -> dict[str, Any]:
        """Return the model's and the optimizer's state."""
        return {"model": dict(self.model.state_dict()), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def set_learning_rate(self, lr: float) -> None:
        """Set the optimizer's learning rate, in place where it is a tensor."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> None:
    """Do what ``clip_grad_norm_`` does; on a CPU, where that takes a norm of each gradient, by one norm of all.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], 1.0)
    >>> weight.grad
    tensor([0.6000, 0.8000])
    """
    parameters = list(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    alike = len({gradient.dtype for gradient in gradients}) == 1 and plain_on_cpu(*gradients)
    if not alike:
        nn.utils.clip_grad_norm_(parameters, limit)
        return
    share = limit / (float(torch.cat([gradient.flatten() for gradient in gradients]).norm()) + 1e-6)
    if not share >= 1:  # a NaN goes to all of them
        torch._foreach_mul_(gradients, share)
