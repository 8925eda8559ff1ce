import base64
import hashlib
import re

import pytest

from phcgnn.experiments.comparison import Cell, Grid
from phcgnn.report.page import Section, details, note, page, remarks, table

EVIL = '"><script>x</script>&'


@pytest.fixture
def parts():
    grid = Grid(EVIL, (EVIL, "b"), ((Cell(EVIL, None, EVIL), Cell("1,5", 1.5)), (Cell("x"), Cell("-", float("nan")))))
    return (table(grid), note(EVIL), remarks([EVIL]), details(EVIL, note("inner"), unfolded=True))


def test_whatever_the_data_hold_it_is_text(parts, parse):
    parser = parse(page(EVIL, EVIL, [Section("one", EVIL, parts)]))
    assert [tag for tag, _ in parser.tags].count("script") == 1
    assert parser.texts.count(EVIL) == 11  # every place that takes a text


def test_the_policy_lets_the_one_script_run_and_nothing_else(parse):
    text = page("a", "b", [])
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for tag, a in parse(text).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_a_table_can_be_sorted_read_aloud_and_reached_by_keyboard(parts, parse):
    parser = parse(parts[0])
    heads = [attributes for tag, attributes in parser.tags if tag == "th"]
    assert all(head["scope"] == "col" and head["aria-sort"] == "none" for head in heads)
    assert sum(tag == "button" for tag, _ in parser.tags) == len(heads) == 2
    region = next(attributes for tag, attributes in parser.tags if tag == "div")
    assert (region["role"], region["tabindex"], region["aria-label"]) == ("region", "0", EVIL)
    values = [attributes.get("data-value") for tag, attributes in parser.tags if tag == "td"]
    assert values == [None, "1.5", None, None]


def test_nothing_makes_nothing():
    assert remarks([]) == ""
