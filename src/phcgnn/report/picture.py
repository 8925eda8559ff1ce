"""A figure as SVG: inside the page it takes the page's colours, as a file it stands on white."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "Picture", "can_draw", "drawing", "style"]

FOREGROUND, LINE = "#0a0b0c", "#1a1b1c"
"""Stand in the drawing for the page's text and for its faint lines, whatever these will be."""

COLOURS = ("#3a7fd5", "#d9632a", "#2b9d6c", "#a35fc4", "#b8860b", "#c43c5c", "#3f9fb5", "#7f8790")
"""Of medium lightness, so that they can be told apart on white and on black."""

_DASHES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_SETTINGS: dict[Any, Any] = {
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": FOREGROUND,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.alpha": 0.6,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "legend.edgecolor": LINE,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "phcgnn",
    "text.color": FOREGROUND,
    "text.parse_math": False,
    "xtick.color": FOREGROUND,
    "ytick.color": FOREGROUND,
}


@dataclass(frozen=True)
class Picture:
    """One figure.

    Attributes:
        name: The file's name without its ending.
        title: What it shows, in a few words.
        caption: What a reader must know to read it.
        svg: As drawn, in stand-in colours.
    """

    name: str
    title: str
    caption: str
    svg: str

    def inline(self) -> str:
        """Return the SVG for a page: its colours follow the page, and its ids are its own."""
        body = re.sub(r"\bid=\"([^\"]+)\"", rf'id="{self.name}-\1"', self.svg)
        body = re.sub(r"url\(#([^)]+)\)", rf"url(#{self.name}-\1)", body)
        body = re.sub(r"href=\"#([^\"]+)\"", rf'href="#{self.name}-\1"', body)
        body = re.sub(r"\sxmlns(:\w+)?=\"[^\"]*\"", "", body)
        return body.replace(FOREGROUND, "currentColor").replace(LINE, "var(--line)")

    def file(self) -> str:
        """Return the SVG for a file."""
        body = self.svg.replace(FOREGROUND, "#1b1f24").replace(LINE, "#c4c9d0")
        head, end, rest = body.partition(">")
        return (
            f'<?xml version="1.0" encoding="utf-8"?>\n{head}{end}<rect width="100%" height="100%" fill="#fff"/>{rest}'
        )


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


@contextlib.contextmanager
def drawing(name: str, title: str, caption: str, size: tuple[float, float]) -> Iterator[tuple[Figure, list[Picture]]]:
    """Give an empty figure of so many inches; at the end of the block the list holds the picture.

    The same figure is the same text, on every run.

    >>> with drawing("line", "A line", "", (3, 2)) as (figure, pictures):
    ...     _ = figure.subplots().plot([0, 1])
    >>> pictures[0].file().count("<svg")
    1
    """
    from matplotlib import rc_context, rcdefaults, rcParams
    from matplotlib.figure import Figure

    pictures: list[Picture] = []
    with rc_context(), warnings.catch_warnings():
        rcdefaults()  # whatever the reader's matplotlibrc says
        rcParams.update(_SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's own fonts have it
        figure = Figure(figsize=size)
        yield figure, pictures
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, dpi=150)
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r"(?<=;base64,)[^\"]+", lambda found: "".join(found[0].split()), svg)
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", svg))
    svg = re.sub(r" id=\"([^\"]+)\"", lambda found: found[0] if found[1] in used else "", svg)  # not all are unique
    pictures.append(Picture(name, title, caption, re.sub(r"\n\s*", "\n", svg)))


def style(number: int) -> dict[str, Any]:
    """Return how the line of that number looks: colours first, then dashes too.

    >>> style(0)["color"] == style(8)["color"], style(0)["linestyle"] == style(8)["linestyle"]
    (True, False)
    """
    rounds, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": _DASHES[rounds % 4], "marker": _MARKERS[place]}
