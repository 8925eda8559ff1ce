"""Files that are either whole or not there: a power cut in the middle leaves what was there before."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

__all__ = ["atomic_write", "write_text"]


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes its name only when all is written and on the disk.

    The bytes go to a temporary file in the same folder, reach the disk, and only then take the name. An error leaves
    what was there before, and no temporary file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note"
    >>> with atomic_write(path) as file:
    ...     _ = file.write(b"whole")
    >>> path.read_bytes()
    b'whole'
    """
    path = Path(os.path.realpath(path))  # through a link, to what it stands for
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(f"{path} is no file that can be replaced (a device or a pipe); give the name of a file.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file, e.g. {path / 'file'}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it, or write {path.name} elsewhere.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)  # a full disk does not say what it was that did not fit
        raise
    _sync_folder(path.parent)


def write_text(path: str | Path, text: str) -> None:
    """Write a text, all or nothing."""
    with atomic_write(path) as file:
        file.write(text.encode())


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk as well, where folders can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
