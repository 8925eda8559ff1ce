"""Draw docs/figures/learned_rule.png: a rule that starts from noise and learns Hamilton's product from examples.

    python docs/figures/learned_rule.py

A PHM layer with one channel a component multiplies: with weight a it maps b to a * b under its rule. Here the rule
alone is learned, from random pairs and their quaternion products. The figure shows C_1 to C_4 before and after.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch.nn.functional import mse_loss

from phcgnn.algebra import Algebra
from phcgnn.functional import kronecker_sum
from phcgnn.nn import MultiplicationRule


def learn(steps: int = 400) -> tuple[Algebra, Algebra]:
    """Return the rule before and after learning."""
    torch.manual_seed(0)
    quaternion, rule = Algebra.named("quaternion"), MultiplicationRule.from_start("uniform", 4)
    before = rule.algebra
    optimizer = torch.optim.Adam(rule.parameters(), lr=0.02)
    for _ in range(steps):
        a, b = torch.randn(2, 64, 4)
        dense = torch.vmap(lambda w: kronecker_sum(rule.constants, w.view(4, 1, 1)))(a)
        loss = mse_loss((dense @ b[..., None])[..., 0], quaternion.product(a, b))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return before, rule.algebra


def draw(before: Algebra, after: Algebra, path: Path) -> None:
    """Write the picture."""
    figure, axes = plt.subplots(2, 4, figsize=(8, 4.4), layout="constrained")
    for row, (algebra, what) in zip(axes, ((before, "start"), (after, "learned")), strict=True):
        for i, axis in enumerate(row):
            image = axis.imshow(algebra.constants[i], cmap="RdBu_r", vmin=-1, vmax=1)
            axis.set_title(f"$C_{i + 1}$")
            axis.set_xticks([])
            axis.set_yticks([])
        nearest, distance = algebra.nearest()
        row[0].set_ylabel(f"{what}\n(nearest: {nearest.name},\ndistance {distance:.3f})")
    figure.colorbar(image, ax=axes, shrink=0.8)
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".png"))
    draw(*learn(), parser.parse_args().output)
