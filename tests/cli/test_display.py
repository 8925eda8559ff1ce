import io
import logging

import pytest
from rich.console import Console

from phcgnn.cli.display import DataDisplay, TrainingDisplay, set_up_logging
from phcgnn.training.loop import Epoch

LOG = logging.getLogger("phcgnn")


@pytest.fixture(autouse=True)
def _log():
    before = LOG.handlers[:], LOG.level, LOG.propagate
    yield
    for handler in LOG.handlers[:]:
        LOG.removeHandler(handler)
        handler.close()
    LOG.handlers[:], LOG.level, LOG.propagate = before


def an_epoch(number, mae, *, best):
    return Epoch(
        epoch=number,
        lr=0.001,
        train_loss=0.5,
        scores={"mae": mae},
        seconds=1.0,
        graphs_per_second=1234.5,
        best=best,
    )


def draw(console):
    """Draw two epochs; the second is worse."""
    with TrainingDisplay(console, 2, "mae", "seed 3  ") as display:
        display.REDRAW_SECONDS = -1.0
        for number, mae in enumerate((0.25, 0.75)):
            for done in (1, 2):
                display.batch(number, done, 2, 10)
            display.epoch(an_epoch(number, mae, best=number == 0), 2)
        display.bar.refresh()


def test_on_a_terminal_one_display_has_it_all():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    draw(console)
    shown = screen.getvalue()
    for part in ("seed 3  epochs", "2/2", "batches", "graphs/s", "loss 0.5000", "lr 0.001", "left"):
        assert part in shown
    assert "best val mae 0.2500 (epoch 1)" in shown  # and not the last one


def test_elsewhere_there_are_lines_alone(capsys):
    console = set_up_logging(quiet=False, verbose=False, log_file=None)
    draw(console)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "seed 3  epoch 1/2  loss 0.5000  val mae 0.2500 *  lr 0.001  1,234 graphs/s  1.0 s",
        "seed 3  epoch 2/2  loss 0.5000  val mae 0.7500  lr 0.001  1,234 graphs/s  1.0 s",
    ]


def test_quiet_is_quiet_but_the_file_has_it(capsys, tmp_path):
    draw(set_up_logging(quiet=True, verbose=False, log_file=tmp_path / "log"))
    assert capsys.readouterr() == ("", "")
    assert "INFO seed 3  epoch 1/2" in (tmp_path / "log").read_text()


def test_set_up_twice_says_nothing_twice(capsys):
    for _ in range(2):
        set_up_logging(quiet=False, verbose=True, log_file=None)
    LOG.debug("once")
    assert capsys.readouterr().err == "once\n"


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("terminal", [True, False])
def test_data_are_shown_where_the_console_is_a_terminal(terminal, quiet, monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return terminal

    monkeypatch.setattr("sys.stderr", stderr := Screen())
    monkeypatch.setenv("TERM", "xterm")
    with DataDisplay(Console(stderr=True, quiet=quiet)) as display:
        display("reading", 1, 2)
        display("packing", 2, 2)
    assert ("reading" in stderr.getvalue()) == (terminal and not quiet)
