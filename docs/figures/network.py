"""Draw docs/figures/network.svg: the data flow of the whole network, of one layer, and of its two ends.

python docs/figures/network.py
python docs/figures/network.py -o network.png
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch

COLOURS = {"phm": "#bcd7f0", "real": "#f6dcb8", "plain": "#e6e6e6", "tensor": "#ffffff", "group": "none"}
INK, FAINT = "#222222", "#777777"


@dataclass(frozen=True)
class Box:
    """A box or a circle, by its middle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> tuple[float, float]:
        """Where arrows arrive."""
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> tuple[float, float]:
        """Where arrows leave."""
        return self.x + self.width / 2, self.y

    @property
    def top(self) -> tuple[float, float]:
        """The middle of the upper edge."""
        return self.x, self.y + self.height / 2

    @property
    def bottom(self) -> tuple[float, float]:
        """The middle of the lower edge."""
        return self.x, self.y - self.height / 2


def box(axes: Axes, x: float, y: float, text: str, kind: str, width: float = 1.5, height: float = 0.7) -> Box:
    """Draw a box."""
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={0.48 * height if kind == 'tensor' else 0.12}",
            facecolor=COLOURS[kind],
            edgecolor=FAINT if kind == "group" else INK,
            linestyle="--" if kind == "group" else "-",
            linewidth=0.9,
            zorder=0 if kind == "group" else 2,
        )
    )
    if kind != "group":
        axes.text(x, y, text, ha="center", va="center", fontsize=8, color=INK, zorder=3)
    else:
        axes.text(x, y - height / 2 - 0.06, text, ha="center", va="top", fontsize=7.5, color=FAINT)
    return Box(x, y, width, height)


def circle(axes: Axes, x: float, y: float, text: str, radius: float = 0.24) -> Box:
    """Draw an operation of two operands."""
    axes.add_patch(Circle((x, y), radius, facecolor="white", edgecolor=INK, linewidth=0.9, zorder=2))
    axes.text(x, y, text, ha="center", va="center", fontsize=11, color=INK, zorder=3)
    return Box(x, y, 2 * radius, 2 * radius)


def path(axes: Axes, *points: tuple[float, float], dashed: bool = False, colour: str = INK) -> None:
    """Draw a line through the points, with an arrow at its end."""
    style = {"color": colour, "linewidth": 0.9, "linestyle": "--" if dashed else "-", "zorder": 1}
    for start, end in itertools.pairwise(points[:-1]):
        axes.plot(*zip(start, end, strict=True), solid_capstyle="round", **style)
    arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8, "lw": 0.9, "color": colour}
    axes.annotate("", points[-1], points[-2], arrowprops={**arrow, "linestyle": "--" if dashed else "-"}, zorder=1)


def chain(axes: Axes, boxes: list[Box]) -> None:
    """Connect neighbours from left to right."""
    for first, second in itertools.pairwise(boxes):
        path(axes, first.right, second.left)


def note(axes: Axes, x: float, y: float, text: str, ha: str = "center") -> None:
    """Write beside the boxes."""
    axes.text(x, y, text, ha=ha, va="center", fontsize=7.5, color=FAINT)


def title(axes: Axes, y: float, text: str) -> None:
    """Head a row."""
    axes.text(0.0, y, text, ha="left", va="center", fontsize=10, color=INK, weight="bold")


def whole(axes: Axes, y: float) -> None:
    """Draw the network."""
    title(axes, y + 1.75, "The network")
    x = box(axes, 0.75, y, "nodes\n$(V, F_{node})$", "tensor")
    encoder = box(axes, 2.75, y, "node\nencoder", "real")
    layers = [
        box(axes, 5.25, y, "layer 1", "phm"),
        box(axes, 7.25, y, "layer 2", "phm"),
        box(axes, 10.25, y, "layer $L$", "phm"),
    ]
    pool = box(axes, 12.75, y, "pooling", "phm")
    predictor = box(axes, 15.0, y, "predictor", "phm")
    out = box(axes, 17.0, y, "$\\hat{y}$\n$(G, T)$", "tensor", 1.2)
    chain(axes, [x, encoder, layers[0], layers[1]])
    path(axes, layers[1].right, (8.55, y))
    axes.text(8.8, y, "…", ha="center", va="center", fontsize=12)
    path(axes, (9.05, y), layers[2].left)
    chain(axes, [layers[2], pool, predictor, out])
    note(axes, 3.97, y - 0.25, "$h^{(0)}$")
    note(axes, 6.25, y + 0.2, "$h^{(1)}$")
    note(axes, 11.45, y + 0.2, "$h^{(L)}$")
    note(axes, 13.85, y + 0.2, "$h_G$")
    high = y + 1.05
    for layer in layers:
        path(axes, (4.0, y), (4.0, high), (layer.x, high), layer.top, dashed=True, colour=FAINT)
    note(
        axes, 7.25, high + 0.2, "skip: $h^{(0)}$ to every layer (initial), or the layer's own input (previous, concat)"
    )
    path(axes, (11.75, y), (11.75, high), (predictor.x, high), predictor.top, dashed=True, colour=FAINT)
    note(axes, 13.4, high + 0.2, "node task: no pooling, $(V, T)$")
    low = y - 1.15
    edges = box(axes, 2.75, low, "edges\n$(E, F_{edge})$", "tensor")
    for layer, name in zip(layers, ("1", "2", "$L$"), strict=True):
        own = box(axes, layer.x, low, f"edge\nencoder {name}", "real")
        path(axes, own.top, layer.bottom)
        path(axes, edges.bottom, (edges.x, low - 0.6), (own.x, low - 0.6), own.bottom)


def layer(axes: Axes, y: float) -> None:
    """Draw one layer."""
    title(axes, y + 1.3, "Layer $l$")
    h = box(axes, 0.75, y, "$h^{(l-1)}$\n$(V, k)$", "tensor")
    edges = box(axes, 0.75, y - 1.3, "$e^{(l)}_{uv}$\n$(E, k)$", "tensor")
    text = "$h_u + e_{uv}$, aggregated over $u \\in N(v)$:\nsum, mean, max, softmax, PNA, …"
    gather = box(axes, 4.25, y - 1.2, text, "plain", 4.1)
    add = circle(axes, 6.7, y, "+")
    phm1 = box(axes, 8.2, y, "PHM\n$k \\to k$", "phm", 1.2)
    norm1 = box(axes, 9.75, y, "norm,\nReLU", "plain", 1.2)
    phm2 = box(axes, 11.3, y, "PHM\n$k \\to k$", "phm", 1.2)
    norm2 = box(axes, 13.15, y, "norm,\nReLU", "plain", 1.2)
    dropout = box(axes, 14.65, y, "dropout", "plain", 1.2)
    skip = circle(axes, 15.85, y, "+")
    out = box(axes, 17.2, y, "$h^{(l)}$\n$(V, k)$", "tensor", 1.3)
    box(axes, 9.75, y, "MP-MLP; without it one PHM layer", "group", 4.7, 1.05)
    chain(axes, [h, add, phm1, norm1, phm2, norm2, dropout, skip, out])
    path(axes, (1.75, y), (1.75, y - 1.1), (gather.left[0], y - 1.1))
    path(axes, edges.right, (gather.left[0], edges.y))
    path(axes, gather.right, (add.x, gather.y), add.bottom)
    note(axes, 4.1, y + 0.22, "$h_v$")
    note(axes, 2.02, y - 0.55, "$h_u$")
    note(axes, 7.05, y - 0.75, "$m_v$")
    path(axes, (skip.x, y + 0.95), skip.top, dashed=True, colour=FAINT)
    note(axes, skip.x, y + 1.15, "$h^{(0)}$ or $h^{(l-1)}$; or concatenated")


def ends(axes: Axes, y: float) -> None:
    """Draw the pooling and the predictor."""
    title(axes, y + 0.95, "Soft attention pooling")
    h = box(axes, 0.75, y, "$h^{(L)}_v$\n$(V, k)$", "tensor", 1.3)
    phm = box(axes, 2.55, y, "PHM\n$k \\to k$", "phm", 1.2)
    real = box(axes, 4.25, y, "linear\n$k \\to k/n$", "real", 1.3)
    gate = box(axes, 5.95, y, "sigmoid", "plain", 1.2)
    times = circle(axes, 7.3, y, "·")
    total = box(axes, 8.75, y, "sum over\n$v \\in G$", "plain", 1.3)
    chain(axes, [h, phm, real, gate, times, total])
    path(axes, (1.65, y), (1.65, y - 0.7), (times.x, y - 0.7), times.bottom)
    note(axes, 4.5, y - 0.92, "the same gate for all $n$ components of a feature")
    axes.text(10.25, y + 0.95, "Predictor", ha="left", va="center", fontsize=10, color=INK, weight="bold")
    start = box(axes, 10.85, y, "$h_G$\n$(G, k)$", "tensor", 1.2)
    hidden = box(axes, 12.8, y, "PHM, norm,\nReLU, dropout", "phm", 2.0)
    last = box(axes, 14.75, y, "PHM\n$\\to nT$", "phm", 1.1)
    affine = box(axes, 16.25, y, "linear\n$\\to T$", "real", 1.1)
    out = box(axes, 17.5, y, "$\\hat{y}$", "tensor", 0.7)
    chain(axes, [total, start, hidden, last, affine, out])
    note(axes, 12.8, y - 0.55, "once a hidden width")


def legend(axes: Axes, y: float) -> None:
    """Say what the colours mean."""
    entries = (("phm", "hypercomplex, learned"), ("real", "real, learned"), ("plain", "other"), ("tensor", "tensor"))
    for i, (kind, text) in enumerate(entries):
        box(axes, 1.0 + 4.2 * i, y, "", kind, 0.6, 0.3)
        axes.text(1.45 + 4.2 * i, y, text, ha="left", va="center", fontsize=8, color=INK)


def draw(target: Path) -> None:
    """Write the picture."""
    mpl.rcParams.update({"svg.hashsalt": "phcgnn", "mathtext.fontset": "cm"})
    figure, axes = plt.subplots(figsize=(11.2, 7.0))
    axes.set_xlim(-0.2, 18.2)
    axes.set_ylim(-0.4, 10.6)
    axes.set_aspect("equal")
    axes.axis("off")
    whole(axes, 8.6)
    layer(axes, 4.9)
    ends(axes, 1.6)
    legend(axes, -0.15)
    metadata = {"Date": None, "Creator": None} if target.suffix == ".svg" else {"Software": None}
    figure.savefig(target, bbox_inches="tight", pad_inches=0.05, dpi=130, facecolor="white", metadata=metadata)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".svg"))
    draw(parser.parse_args().output)
