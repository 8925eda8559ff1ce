"""One reader a format; :func:`phcgnn.data.molecules.rows.open_rows` picks among them."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from phcgnn.data.molecules.quiet import chemistry_problems, quiet_rdkit
from phcgnn.data.molecules.rows import EMPTY, Reader, Row, Rows

__all__ = ["LARGEST_CELL", "READERS", "open_binary"]

LARGEST_CELL = 2**27
"""The most characters of one cell."""

_DELIMITERS = ",\t;"


def open_binary(source: str | Path | BinaryIO, stack: ExitStack) -> BinaryIO:
    """Open a path, a pipe or a file, and look through gzip."""
    if source == "-":
        raw: BinaryIO = sys.stdin.buffer
    elif isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file.")
        raw = stack.enter_context(open(path, "rb"))  # noqa: SIM115
    else:
        raw = source
    buffered = _buffered(raw, stack)
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        buffered = _buffered(stack.enter_context(gzip.open(buffered, "rb")), stack)  # noqa: SIM115
    return buffered


def _buffered(file: object, stack: ExitStack) -> Any:
    if isinstance(file, io.BufferedReader):
        return file
    buffered = io.BufferedReader(cast(io.RawIOBase, file))
    stack.callback(buffered.detach)  # or it would close the caller's file
    return buffered


def _read_csv(name: str, file: BinaryIO, stack: ExitStack, delimiter: str | None) -> Rows:
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_CELL))
    text = _text(file, stack)
    first = ""
    skipped = 0
    for first in text:
        if first.strip():
            break
        skipped += 1
    if not first.strip():
        raise ValueError(f"{name}: the file is empty; a table begins with the names of its columns.")
    delimiter = delimiter or max(_DELIMITERS, key=re.sub(r'"[^"]*"', "", first).count)
    reader = csv.reader(_chain(first, text), delimiter=delimiter, strict=True)
    try:
        columns = [column.strip() for column in next(reader)]
    except csv.Error as error:
        raise ValueError(f"{name}: the header cannot be read: {error}. It begins {first[:60]!r}.") from None
    while len(columns) > 1 and not columns[-1]:
        columns.pop()
    return Rows(name, columns, _csv_rows(reader, len(columns), skipped))


def _csv_rows(reader: Iterator[list[str]], width: int, skipped: int) -> Iterator[Row]:
    number = 0
    while True:
        number += 1
        before = reader.line_num  # type: ignore[attr-defined]
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line = skipped + reader.line_num  # type: ignore[attr-defined]
            what = f"lines {skipped + before + 1:,} to {line:,}" if line > skipped + before + 1 else "this line"
            yield Row(
                number, line, [""] * width, f"{what} cannot be read as CSV: {error}; is a quotation mark missing?"
            )
            continue
        line = skipped + reader.line_num  # type: ignore[attr-defined]
        if len(cells) == width and any(map(str.strip, cells)):
            yield Row(number, line, cells)
            continue
        problem = ""
        if not any(cell.strip() for cell in cells):
            problem = EMPTY
        elif len(cells) < width:
            problem = f"{len(cells)} cells, where the header has {width}"
        elif any(cell.strip() for cell in cells[width:]):
            problem = f"{len(cells)} cells, where the header has {width}; is a cell with the delimiter in it unquoted?"
        else:
            cells = cells[:width]
        yield Row(number, line, cells + [""] * (width - len(cells)), problem)


def _read_smi(name: str, file: BinaryIO, stack: ExitStack, delimiter: str | None) -> Rows:
    text = _text(file, stack)
    first = next(text, "")
    if not first:
        raise ValueError(f"{name}: the file is empty; a line is a SMILES and a name.")
    head = first.strip().split("\t" if "\t" in first else None)
    titled = bool(head) and head[0].casefold() == "smiles"
    columns = head if titled else ["smiles", "name"]
    lines = text if titled else _chain(first, text)
    tabs = titled and "\t" in first
    rows = _smi_rows(lines, len(columns), tabs, 1 + titled)
    return Rows(name, columns, rows, smiles=columns[0])


def _smi_rows(lines: Iterator[str], width: int, tabs: bool, start: int) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        cells = line.rstrip("\r\n").split("\t", width - 1) if tabs else line.split(None, width - 1)
        cells = [cell.strip() for cell in cells]
        yield Row(number, number + start - 1, cells + [""] * (width - len(cells)), "" if any(cells) else EMPTY)


_FIELD = re.compile(r"^>.*?<([^<>]*)>")


def _read_sdf(name: str, file: BinaryIO, stack: ExitStack, delimiter: str | None) -> Rows:
    if not file.seekable() or (isinstance(file, io.BufferedReader) and file is getattr(sys.stdin, "buffer", None)):
        copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        while block := file.read(2**20):
            copy.write(block)
        copy.seek(0)
        file = cast(BinaryIO, copy)
    text = _text(file, stack)
    fields: dict[str, None] = {}
    empty = True
    for line in text:
        empty = empty and not line.strip()
        if line.startswith(">") and (match := _FIELD.match(line)):
            fields[match[1]] = None
    if empty:
        raise ValueError(f"{name}: the file is empty; an SDF is records that end with $$$$.")
    text.seek(0)
    taken = {field.casefold() for field in fields}
    smiles, title = (label if label not in taken else f"{label} (structure)" for label in ("smiles", "name"))
    rows = _sdf_rows(text, list(fields))
    return Rows(name, [smiles, title, *fields], rows, smiles=smiles, empty_molecules=True)


def _sdf_rows(text: Iterator[str], fields: list[str]) -> Iterator[Row]:
    number = line = 0
    record: list[str] = []
    for line, raw in enumerate(text, 1):
        content = raw.rstrip("\r\n")
        if not content.startswith("$$$$"):
            record.append(content)
            continue
        number += 1
        yield _sdf_row(record, fields, number, line)
        record = []
    if any(content.strip() for content in record):
        yield _sdf_row(record, fields, number + 1, line)


def _sdf_row(record: list[str], fields: list[str], number: int, line: int) -> Row:
    from rdkit import Chem

    head = 3  # a title, a line of its program and a remark may begin with anything
    end = next(
        (i for i, content in enumerate(record) if i >= head and content.startswith(("M  END", ">"))), len(record)
    )
    values: dict[str, list[str]] = {}
    current: list[str] | None = None
    for content in record[end:]:
        if content.startswith(">") and (match := _FIELD.match(content)):
            current = values.setdefault(match[1], [])
        elif not content.strip():
            current = None
        elif current is not None:
            current.append(content)
    block = "\n".join(record[: end + 1]) + "\n"
    with quiet_rdkit():
        molecule: Any = Chem.MolFromMolBlock(block)
        smiles = "" if molecule is None else Chem.MolToSmiles(molecule)
        problem = ""
        if molecule is None:
            raw: Any = Chem.MolFromMolBlock(block, sanitize=False)
            problem = chemistry_problems(raw) or "not a structure that RDKit can read"
    cells = [smiles, record[0].strip() if record else "", *("\n".join(values.get(field, [])) for field in fields)]
    return Row(number, line, cells, problem)


def _read_parquet(name: str, file: BinaryIO, stack: ExitStack, delimiter: str | None) -> Rows:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(f"{name}: Parquet is read by pyarrow, which is not here: pip install pyarrow.") from None
    if not file.seekable():
        raise ValueError(f"{name}: Parquet cannot be read from a pipe; save it to a file first.")
    try:
        table = stack.enter_context(pyarrow.parquet.ParquetFile(file))
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{name}: not a Parquet file, or a damaged one: {error}") from None
    return Rows(name, table.schema_arrow.names, _parquet_rows(table))


def _parquet_rows(table: Any) -> Iterator[Row]:
    number = 0
    for batch in table.iter_batches(batch_size=4096):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            cells = list(map(_parquet_cell, values))
            yield Row(number, None, cells, "" if any(cell.strip() for cell in cells) else EMPTY)


def _parquet_cell(value: Any) -> str:
    if isinstance(value, bytes):  # a column of texts that its writer did not mark as such
        return value.decode("utf-8", errors=_LATIN)
    return "" if value is None or value != value else str(value)


READERS: dict[str, Reader] = {"csv": _read_csv, "smi": _read_smi, "sdf": _read_sdf, "parquet": _read_parquet}


def _text(file: BinaryIO, stack: ExitStack) -> TextIO:
    """Decode: UTF-8, or UTF-16 where its mark stands first; bytes that are neither are read as Latin-1."""
    head = cast(io.BufferedReader, file).peek(3)[:3]
    encoding = "utf-16" if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    text = io.TextIOWrapper(file, encoding=encoding, errors=_LATIN, newline="")
    stack.callback(_release, text)
    return text


def _release(text: io.TextIOWrapper) -> None:
    text.detach()


def _as_latin(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


_LATIN = "phcgnn.latin-1"
codecs.register_error(_LATIN, _as_latin)


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    """Put a line back; left early, a generator that says `yield from` would close the file, which is not its own."""
    return itertools.chain([first], rest)
