"""What a training step changes, put back to where it was."""

from __future__ import annotations

import torch
from torch import Tensor, nn, optim

from phcgnn.training.checkpoint import random_state, restore_random_state

__all__ = ["Snapshot"]


class Snapshot:
    """What a step changes, as it is now."""

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.copies = [(tensor, tensor.detach().clone()) for tensor in self._tensors()]
        self.random = random_state()

    def _tensors(self) -> list[Tensor]:
        of_optimizer = [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        return [*self.model.parameters(), *self.model.buffers(), *of_optimizer]

    def restore(self) -> None:
        """Go back to it, in place; what the optimizer has added since is as it would begin, zero."""
        known = {id(tensor) for tensor, _ in self.copies}
        with torch.no_grad():
            for tensor, value in self.copies:
                tensor.copy_(value)
            for tensor in self._tensors():
                if id(tensor) not in known:
                    tensor.zero_()
        restore_random_state(self.random)
