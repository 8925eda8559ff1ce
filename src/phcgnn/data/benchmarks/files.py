"""The files of the official loaders: found, fetched, unpacked; and what to do where that fails."""

from __future__ import annotations

import gzip
import http.client
import os
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from phcgnn.data.progress import Progress
from phcgnn.errors import DataError

__all__ = ["Remote", "damaged", "provide"]

TIMEOUT = 20.0
"""Seconds without an answer or a byte after which a download is given up."""

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Remote:
    """Where missing files come from.

    Args:
        url: A zip archive, or a single file.
        archive: Where the download lies, and where a copy fetched by hand is looked for.
        inner: The folder inside the archive that becomes the wanted folder; ``""`` for all of it.
        gives: The names of the wanted files that come from here; empty for all of them.
    """

    url: str
    archive: Path
    inner: str = ""
    gives: tuple[str, ...] = ()


def provide(folder: Path, files: Sequence[str], remotes: Sequence[Remote], progress: Progress) -> None:
    """Make sure that all ``files`` are in ``folder``; fetch and unpack the archives where some are missing.

    A file gets its name only once it is complete, so an interrupted run leaves nothing that looks finished.
    """
    for number, remote in enumerate(remotes):
        if not _missing(folder, remote.gives or files):
            continue
        fetched = not remote.archive.is_file()
        if fetched:
            try:
                _download(remote.url, remote.archive, progress)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()  # it holds the answer open
                others = [
                    f"{other.url} at {other.archive.absolute()}"
                    for other in remotes[number + 1 :]
                    if _missing(folder, other.gives or files) and not other.archive.is_file()
                ]
                likewise = f" (likewise {', '.join(others)})" if others else ""
                raise DataError(
                    f"{_listed(folder, files)} missing, and {remote.url} cannot be fetched ({error}). Fetch it on "
                    f"another machine, put it at {remote.archive.absolute()}{likewise}, and run again; or point --root "
                    "at a folder that has these files."
                ) from error
        if remote.archive.suffix == ".zip":
            _unpack(remote, folder)
            if fetched:
                remote.archive.unlink()
    if _missing(folder, files):
        raise DataError(f"{_listed(folder, files)} missing, and not in {', '.join(r.url for r in remotes)} either.")


def damaged(folder: Path, files: Sequence[str]) -> list[str]:
    """Return the files that are cut short, as far as their format can tell."""
    return [name for name in files if (folder / name).is_file() and not _is_whole(folder / name)]


def _is_whole(path: Path) -> bool:
    if path.suffix == ".gz":
        try:
            with gzip.open(path) as file:
                while file.read(CHUNK):
                    pass
        except (OSError, EOFError, zlib.error):
            return False
        return True
    if path.suffix == ".pt":
        return zipfile.is_zipfile(path)
    if path.suffix == ".pickle":
        with path.open("rb") as file:
            file.seek(-min(1, path.stat().st_size), os.SEEK_END)
            return file.read() == b"."  # the last instruction of every pickle
    return path.stat().st_size > 0 or path.suffix == ".txt"


def _missing(folder: Path, files: Sequence[str]) -> list[str]:
    return [name for name in files if not (folder / name).is_file()]


def _listed(folder: Path, files: Sequence[str]) -> str:
    missing = _missing(folder, files)
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return f"{names} in {folder.absolute()} {'is' if len(missing) == 1 else 'are'}"


def _download(url: str, path: Path, progress: Progress) -> None:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length else None
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        try:
            done = 0
            with part.open("wb") as file:
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    progress(f"fetching {path.name}", done, total)
            if total is not None and done != total:
                raise OSError(f"it broke off after {done:,} of {total:,} bytes")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _unpack(remote: Remote, folder: Path) -> None:
    try:
        with zipfile.ZipFile(remote.archive) as archive:
            for entry in archive.infolist():
                inside = PurePosixPath(entry.filename)
                if entry.is_dir() or not inside.is_relative_to(remote.inner) or ".." in inside.parts:
                    continue
                path = folder / inside.relative_to(remote.inner)
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(path.name + ".part")
                with archive.open(entry) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target, CHUNK)
                part.replace(path)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{remote.archive.absolute()} is no complete zip archive ({error}). Delete it and run again, or put a "
            f"complete copy of {remote.url} there."
        ) from error
