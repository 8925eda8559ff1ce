"""Activations by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from phcgnn.registry import Registry

__all__ = ["ACTIVATIONS", "Activation", "build_activation"]

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: Registry[type[nn.Module]] = Registry("activation")
for _name, _class in {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "identity": nn.Identity,
    "leaky-relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}.items():
    ACTIVATIONS.register(_name)(_class)


def build_activation(activation: str | Activation | None) -> Activation:
    """Return a new module for a name, the argument itself for an instance, the identity for None.

    >>> build_activation("relu")
    ReLU()
    """
    if activation is None:
        return nn.Identity()
    if isinstance(activation, str):
        return ACTIVATIONS[activation]()
    if not callable(activation):
        raise TypeError(f"an activation is a name, a callable or None, got {activation!r}.")
    return activation
