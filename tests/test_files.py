import os

import pytest

from phcgnn.files import atomic_write, write_text


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "note"
    write_text(path, "before")

    def cut_off():
        with atomic_write(path) as file:
            file.write(b"half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power"):
        cut_off()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_is_taken_only_at_the_end(tmp_path):
    path = tmp_path / "note"
    with atomic_write(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("one", "two"):
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_what_is_no_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe is no file that can be replaced"):
        write_text(pipe, "x")
    assert pipe.is_fifo()


def test_bad_places_are_named(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_text(tmp_path, "x")
    with pytest.raises(FileNotFoundError, match="does not exist; create it"):
        write_text(tmp_path / "nowhere" / "x", "x")
