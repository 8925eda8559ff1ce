"""Every console block of the README and the docs runs; the ``>>>`` examples are doctests and run with the rest.

A block fenced as ``console`` is run line by line where lines start with ``$ ``; the output printed there is compared if
there is any. A block preceded by the comment ``<!-- not run: reason -->`` is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?P<skip><!-- not run: [^>]+-->\n+)?```console\n(?P<text>.*?)```", re.DOTALL)


def blocks():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            if not match["skip"]:
                yield pytest.param(match["text"], id=f"{page.name}-{number}")


def commands(text: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [tuple(part.partition("\n")[::2]) for part in parts]


@pytest.mark.parametrize("text", list(blocks()))
def test_console_block(text, tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    assert commands(text), "a console block has at least one line that starts with '$ '"
    for command, expected in commands(text):
        result = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}: {result.stderr}"
        if expected.strip():
            assert result.stdout.split() == expected.split(), command


def slugs(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head) for head in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE))
    found: dict[str, int] = {}
    anchors = set()
    for head in plain:
        slug = re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
        anchors.add(slug if slug not in found else f"{slug}-{found[slug]}")
        found[slug] = found.get(slug, 0) + 1
    return anchors


def test_anchors_are_github_s():
    assert slugs("# A `b`, c: [d](e.md)!\n\n```\n# no\n```\n## x-y\n## x-y\n") == {"a-b-c-d", "x-y", "x-y-1"}


def test_anchors_of_links_are_headings():
    link = re.compile(r"\]\((?!https?:|mailto:)([^)#]*)#([^)]+)\)")
    found = 0
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target, anchor in link.findall(page.read_text(encoding="utf-8")):
            there = page.parent / target if target else page
            assert anchor in slugs(there.read_text(encoding="utf-8")), f"{page.name}: {target}#{anchor}"
            found += 1
    assert found


def test_links_between_pages_lead_somewhere():
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)")
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in link.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
