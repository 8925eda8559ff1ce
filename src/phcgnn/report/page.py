"""The HTML page: one file that opens from disk, asks for nothing else, and shows data as text, whatever is in them."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from phcgnn._version import __version__
from phcgnn.experiments.comparison import Cell, Grid
from phcgnn.report.picture import Picture

__all__ = ["Section", "details", "figures", "note", "page", "remarks", "table", "table_head"]


@dataclass(frozen=True)
class Section:
    """A part of the page that its navigation leads to.

    Attributes:
        name: Its anchor.
        title: For people; escaped by the page.
        parts: HTML.
    """

    name: str
    title: str
    parts: tuple[str, ...]


def page(title: str, subtitle: str, sections: Sequence[Section], warning: str | None = None) -> str:
    """Return the whole document, with a warning above all sections if there is one.

    Its policy lets the one script in it run, by its digest, and nothing else: no other script, no request.

    >>> text = page("<b>", "", [Section("all", "All", (note("1 < 2"),))])
    >>> "<h1>&lt;b&gt;</h1>" in text, "1 &lt; 2" in text
    (True, True)
    """
    css, script = _resource("page.css"), _resource("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    links = "".join(f'<li><a href="#{escape(one.name)}">{escape(one.title)}</a></li>' for one in sections)
    body = "\n".join(
        f'<section id="{escape(one.name)}">\n<h2>{escape(one.title)}</h2>\n{"".join(one.parts)}\n</section>'
        for one in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{css}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="subtitle">{escape(subtitle)}</p>
{note(warning) if warning else ""}<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
<footer>phcgnn {escape(__version__)}. Column heads sort their table.</footer>
<script>{script}</script>
</body>
</html>
"""


def table(grid: Grid, *, heading: str = "h3") -> str:
    """Draw a grid as a table that is sorted by pressing a column's head."""
    heads = "".join(map(table_head, grid.columns))
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in grid.rows)
    title = f"<{heading}>{escape(grid.title)}</{heading}>\n" if grid.title else ""
    label = escape(grid.title or "table")
    return (
        f'{title}<div class="scroll" role="region" tabindex="0" aria-label="{label}">\n'
        f'<table class="sortable"><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table>\n</div>\n'
    )


def table_head(name: str, kind: str = "") -> str:
    """Return the head of a column, which sorts by it."""
    of_kind = f' class="{escape(kind)}"' if kind else ""
    return f'<th{of_kind} scope="col" aria-sort="none"><button type="button">{escape(name)}</button></th>'


def figures(pictures: Iterable[Picture | None]) -> str:
    """Lay figures out side by side where there is room."""
    drawn = "".join(map(_figure, (one for one in pictures if one is not None)))
    return f'<div class="figures">\n{drawn}</div>\n' if drawn else ""


def details(summary: str, *parts: str, unfolded: bool = False) -> str:
    """Fold parts away under a line; all of them are unfolded for printing."""
    return f"<details{' open' if unfolded else ''}><summary>{escape(summary)}</summary>\n{''.join(parts)}</details>\n"


def note(text: str) -> str:
    """Say something that the reader must know."""
    return f'<p class="note">{escape(text)}</p>\n'


def remarks(texts: Iterable[str]) -> str:
    """List what a reader should know."""
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{lines}</ul>\n" if lines else ""


def _cell(cell: Cell) -> str:
    value = cell.value
    sorts = f' data-value="{value!r}"' if value is not None and math.isfinite(value) else ""
    kind = f' class="{escape(cell.kind)}"' if cell.kind else ""
    return f"<td{kind}{sorts}>{escape(cell.text)}</td>"


def _figure(picture: Picture) -> str:
    svg = picture.inline().replace("<svg", f'<svg role="img" aria-label="{escape(picture.title)}"', 1)
    caption = f"<b>{escape(picture.title)}</b> {escape(picture.caption)}"
    return f"<figure>\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>\n"


def _resource(name: str) -> str:
    return (resources.files("phcgnn.report") / name).read_text(encoding="utf-8")
