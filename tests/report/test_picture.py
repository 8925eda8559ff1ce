import re
import warnings
from xml.etree import ElementTree

import pytest

from phcgnn.report import picture
from phcgnn.report.picture import FOREGROUND, LINE, drawing, style

pytest.importorskip("matplotlib")
from matplotlib import rc_context, rcParams

NAME = "<script>alert('$x_1$')</script> & 分子"


def draw(name="line"):
    with drawing(name, "A line", "", (3, 2)) as (figure, pictures):
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], "o", label=NAME)
        axes.set_title(NAME)
        axes.legend()
    return pictures[0]


def test_the_same_figure_is_the_same_text():
    assert draw() == draw()


def test_the_reader_s_own_settings_do_not_show():
    before = draw()
    with rc_context({"lines.linewidth": 9.0, "axes.facecolor": "red", "text.usetex": True}):
        assert draw() == before
        assert rcParams["lines.linewidth"] == 9.0


def test_a_file_is_an_svg_in_colours_of_its_own_on_white():
    text = draw().file()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root[0].attrib == {"width": "100%", "height": "100%", "fill": "#fff"}
    assert FOREGROUND not in text
    assert LINE not in text
    assert NAME in "".join(root.itertext())  # as it is: neither markup nor mathematics


def test_inside_the_page_colours_are_the_page_s_and_ids_are_its_own():
    text = draw("mine").inline()
    assert "currentColor" in text
    assert "var(--line)" in text
    assert FOREGROUND not in text
    assert LINE not in text
    assert "<script" not in text
    assert "http" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert ids
    assert len(ids) == len(set(ids))
    assert all(one.startswith("mine-") for one in ids)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    assert used
    assert used <= set(ids)


def test_signs_that_the_font_lacks_are_drawn_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "分子" in draw().file()


def test_styles_can_be_told_apart():
    looks = [tuple(style(number).values()) for number in range(32)]
    assert len(set(looks)) == 32


def test_whether_matplotlib_is_there_is_found_out(monkeypatch):
    assert picture.can_draw()
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert not picture.can_draw()
