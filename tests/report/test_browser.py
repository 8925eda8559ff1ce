"""The reports in a real browser: Debian's chromium, headless, with the page opened from disk."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("matplotlib")

COLOURS = 500
"""What is drawn has more, and an empty page, even with an icon for what is missing on it, has fewer."""

KINDS = ("reproduced", "regression", "classification", "multiclass")


def colours(png: bytes) -> dict[tuple[int, int, int], int]:
    """Return how many pixels have each colour."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    return {colour: count for count, colour in image.getcolors(image.width * image.height)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_opens_from_disk_without_a_complaint_and_shows_something(kind, dark, reported, browser):
    folder, _ = reported(kind)
    with browser.open(folder / "report.html", dark=dark) as tab:
        found = colours(tab.screenshot(whole=True))
        assert tab.complaints() == []
        assert {address.partition(":")[0] for address in tab.requests()} <= {"file", "data"}
        assert sum(address.startswith("file:") for address in tab.requests()) == 1
        assert tab.run("window.hacked === undefined")
    assert len(found) > COLOURS
    ground = max(found, key=found.__getitem__)
    assert ground == ((18, 22, 27) if dark else (255, 255, 255))
    text = [colour for colour in found if abs(sum(colour) - sum(ground)) > 450]
    assert sum(found[colour] for colour in text) > 1000, "nothing stands out from the ground"


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_phone_nothing_is_wider_than_the_screen(kind, reported, browser):
    folder, _ = reported(kind)
    with browser.open(folder / "report.html", width=360, height=740) as tab:
        assert tab.run("document.documentElement.scrollWidth") == 360
        assert tab.run("Math.max(...[...document.querySelectorAll('figure svg')].map(e => e.clientWidth))") <= 360
        assert tab.complaints() == []


COLUMN = "[...document.querySelectorAll('#table2 tbody tr')].map(row => row.cells[{}].textContent)"
HEAD = "document.querySelectorAll('#table2 thead th')[{}]"


def press(tab, x, y):
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def test_a_click_on_a_head_sorts_its_table(reported, browser):
    folder, _ = reported("reproduced")
    with browser.open(folder / "report.html") as tab:
        counts = [int(text.replace(",", "")) for text in tab.run(COLUMN.format(2))]
        assert counts == sorted(counts, reverse=True)  # PHC-1 has more parameters than PHC-4
        box = f"{HEAD.format(2)}.querySelector('button').getBoundingClientRect()"
        place = tab.run(f"[{box}.x + 10, {box}.y + 5]")
        for order, direction in ((sorted(counts), "ascending"), (counts, "descending")):
            press(tab, *place)
            assert [int(text.replace(",", "")) for text in tab.run(COLUMN.format(2))] == order
            assert tab.run(f"{HEAD.format(2)}.getAttribute('aria-sort')") == direction
        assert tab.complaints() == []


def test_the_keyboard_reaches_a_head_and_sorts(reported, browser):
    folder, _ = reported("reproduced")
    with browser.open(folder / "report.html") as tab:
        before = tab.run(COLUMN.format(0))
        for _ in range(50):
            tab.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
            tab.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
            if tab.run(f"document.activeElement === {HEAD.format(0)}.querySelector('button')"):
                break
        else:
            pytest.fail("the tabulator does not reach the table's head")
        for _ in range(2):
            tab.call(
                "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )
            tab.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)
        assert tab.run(COLUMN.format(0)) == before[::-1] == ["PHC-4", "PHC-1"]


def test_what_has_no_number_stays_below(reported, browser):
    folder, _ = reported("reproduced")
    with browser.open(folder / "report.html") as tab:
        tab.run(
            "window.rows = document.querySelector('#table2 tbody'); "
            "rows.insertAdjacentHTML('afterbegin', '<tr><td>none</td>' + '<td>-</td>'.repeat(6) + '</tr>')"
        )
        for _ in range(2):
            tab.run(f"{HEAD.format(4)}.querySelector('button').click()")
            assert tab.run(COLUMN.format(0))[-1] == "none"


def test_on_paper_everything_is_unfolded(reported, browser):
    folder, _ = reported("reproduced")
    with browser.open(folder / "report.html") as tab:
        folded = "[...document.querySelectorAll('details')].filter(one => !one.open).length"
        assert tab.run(folded) == 1
        tab.run("dispatchEvent(new Event('beforeprint'))")
        assert tab.run(folded) == 0
        tab.call("Emulation.setEmulatedMedia", media="print")
        assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_the_browser_s_own_eyes_are_open(tmp_path, browser):
    """What the tests above rely on: a page that complains and asks for more is seen to."""
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error('one'); nothing.here</script><img src='missing.png'>")
    with browser.open(path) as tab:
        complaints = tab.complaints()
        assert any("one" in text for text in complaints)
        assert any("Uncaught" in text for text in complaints)
        assert any(address.endswith("missing.png") for address in tab.requests())
        assert len(colours(tab.screenshot(whole=True))) < COLOURS
