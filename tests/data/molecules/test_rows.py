from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys

import pytest

from phcgnn.data.molecules.rows import find_column, open_rows, stream_rows

SDF = """ethanol
     RDKit          2D

  3  2  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0
    1.2990    0.7500    0.0000 C   0  0
    2.5981   -0.0000    0.0000 O   0  0
  1  2  1  0
  2  3  1  0
M  END
>  <logS>  (1)
1.1

>  <note>
two
lines

$$$$
"""
BROKEN = SDF.replace("ethanol", "broken").replace("  1  2  1  0\n", "  1  9  1  0\n")
NOTHING = "nothing\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n>  <logP>\n3\n\n$$$$\n"


def read(data: bytes | str, **options):
    file = io.BytesIO(data.encode() if isinstance(data, str) else data)
    with open_rows(file, **options) as rows:
        return rows.columns, [(row.number, row.line, row.cells, row.problem) for row in rows]


def good(data: bytes | str, **options):
    columns, rows = read(data, **options)
    assert all(problem == "" for *_, problem in rows)
    return columns, [cells for _, _, cells, _ in rows]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("mark", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
def test_line_ends_delimiters_marks_and_gzip(end, delimiter, mark, last, zipped):
    text = end.join(delimiter.join(cells) for cells in (("smiles", "näme", "y"), ("CCO", "a", "1"), ("C", "b", "2")))
    data = (text + end * last).encode(mark)
    columns, cells = good(gzip.compress(data) if zipped else data)
    assert columns == ("smiles", "näme", "y")
    assert cells == [["CCO", "a", "1"], ["C", "b", "2"]]


def test_mixed_line_ends_in_one_file():
    assert good("smiles,y\r\nC,1\nCC,2\rCCC,3\r\n")[1] == [["C", "1"], ["CC", "2"], ["CCC", "3"]]


def test_quoting_a_line_break_and_the_line_numbers_behind_it():
    _, rows = read('smiles,name,y\nC,"a ""b"", c\nd",1\nCC,e,2\n')
    assert rows == [(1, 3, ["C", 'a "b", c\nd', "1"], ""), (2, 4, ["CC", "e", "2"], "")]


def test_quotes_in_the_header_do_not_mislead_the_choice_of_delimiter():
    assert good('smiles;"a,b,c,d"\nC;1\n') == (("smiles", "a,b,c,d"), [["C", "1"]])


def test_a_delimiter_that_is_given_wins():
    assert good("smiles|y,z\nC|1\n", delimiter="|")[0] == ("smiles", "y,z")
    with pytest.raises(ValueError, match=r"must be one character, got '\|\|'"):
        read("a", delimiter="||")
    with pytest.raises(ValueError, match="`delimiter` is for CSV"):
        read("C", delimiter=",", format="smi")


def test_empty_rows_count_but_for_those_at_the_end():
    _, rows = read("\n\nsmiles,y\nC,1\n\n , \nCC,2\n\n,\n\n")
    assert [(number, line, problem) for number, line, _, problem in rows] == [
        (1, 4, ""),
        (2, 5, "the row is empty"),
        (3, 6, "the row is empty"),
        (4, 7, ""),
    ]


def test_rows_of_another_width():
    _, rows = read("smiles,y\nC\nC,1,\nC,1,x\n")
    assert [problem for *_, problem in rows] == [
        "1 cells, where the header has 2",
        "",
        "3 cells, where the header has 2; is a cell with the delimiter in it unquoted?",
    ]
    assert rows[1][2] == ["C", "1"]


def test_a_quotation_mark_that_is_never_closed_is_one_row_that_names_its_lines():
    _, rows = read('smiles,y\nC,1\n"CC,2\nCCC,3\nCCCC,4\n')
    assert len(rows) == 2
    assert rows[1][3].startswith("lines 3 to 5 cannot be read as CSV")


def test_ten_megabytes_in_one_cell():
    _, cells = good("smiles,y\n" + "C" * 10_000_000 + ",1\nCC,2\n")
    assert len(cells[0][0]) == 10_000_000
    assert cells[1] == ["CC", "2"]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file(data):
    with pytest.raises(ValueError, match="the file is empty; a table begins with the names of its columns"):
        read(data)


@pytest.mark.parametrize("data", [b"", b"\r\n \n", gzip.compress(b"", mtime=0)])
def test_an_empty_sdf(data):
    with pytest.raises(ValueError, match="the file is empty; an SDF is records"):
        read(data, format="sdf")


def test_bytes_that_are_no_utf8_are_latin():
    assert good("smiles,µ\nC,5 µM\n".encode("latin-1")) == (("smiles", "µ"), [["C", "5 µM"]])


def test_a_gzip_file_that_is_cut_off():
    data = gzip.compress(b"smiles,y\n" + os.urandom(100_000).hex().encode())
    with pytest.raises(ValueError, match="gzip file is damaged or cut off"):
        read(data[: len(data) // 2])


@pytest.mark.parametrize("format", ["csv", "smi", "sdf"])
@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:5], lambda b: b[:12], lambda b: b[:-9], lambda b: b[:-8] + bytes(8), lambda b: b + b"garbage"],
    ids=["head", "first bytes", "end", "checksum", "more behind it"],
)
def test_a_damaged_gzip_file_is_one_message(format, damage):
    data = damage(gzip.compress(b"smiles\ty\nCCO\t1\n$$$$\n"))
    with pytest.raises(ValueError, match=r"input: the gzip file is damaged or cut off: .*Fetch or write it again"):
        list(open_rows(io.BytesIO(data), format=format))


def test_a_name_is_found_however_its_letters_are_composed():
    assert find_column("t.csv", ["y", "lo\u0308slich"], "l\u00f6slich") == 1
    with pytest.raises(ValueError, match="2 columns are called"):
        find_column("t.csv", ["l\u00f6slich", "lo\u0308slich"], "l\u00f6slich")


def test_a_file_of_the_callers_stays_open():
    file = io.BytesIO(b"smiles\nC\n")
    with open_rows(file) as rows:
        list(rows)
    import gc

    gc.collect()
    assert not file.closed


def test_smi_with_and_without_header():
    assert good("CCO ethyl alcohol\nC\tmethane\nCC\n", format="smi") == (
        ("smiles", "name"),
        [["CCO", "ethyl alcohol"], ["C", "methane"], ["CC", ""]],
    )
    assert good("SMILES id y\r\nC a 1\r\n", format="smi") == (("SMILES", "id", "y"), [["C", "a", "1"]])
    assert good("smiles\ta name\nC\tb c\n", format="smi")[1] == [["C", "b c"]]
    with pytest.raises(ValueError, match="the file is empty; a line is a SMILES"):
        read("", format="smi")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("zipped", [True, False])
def test_sdf_with_a_broken_record_and_one_without_atoms(end, zipped):
    pytest.importorskip("rdkit")
    data = (SDF + BROKEN + NOTHING + SDF.rpartition("$$$$")[0]).replace("\n", end).encode()
    columns, rows = read(gzip.compress(data) if zipped else data, format="sdf")
    assert columns == ("smiles", "name", "logS", "note", "logP")
    assert [cells for _, _, cells, _ in rows] == [
        ["CCO", "ethanol", "1.1", "two\nlines", ""],
        ["", "broken", "1.1", "two\nlines", ""],
        ["", "nothing", "", "", "3"],
        ["CCO", "ethanol", "1.1", "two\nlines", ""],
    ]
    assert [bool(problem) for *_, problem in rows] == [False, True, False, False]
    assert rows[1][0] == 2


def test_an_sdf_title_may_begin_with_anything():
    pytest.importorskip("rdkit")
    for title in (">ethanol", "M  END"):
        _, rows = read(SDF.replace("ethanol", title, 1), format="sdf")
        assert [cells[:3] for _, _, cells, _ in rows] == [["CCO", title, "1.1"]]


def test_sdf_whose_own_fields_are_called_smiles_and_name():
    pytest.importorskip("rdkit")
    columns, rows = read(SDF.replace("logS", "SMILES").replace("note", "Name"), format="sdf")
    assert columns == ("smiles (structure)", "name (structure)", "SMILES", "Name")
    assert rows[0][2] == ["CCO", "ethanol", "1.1", "two\nlines"]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    table = pyarrow.table({"smiles": ["CCO", None, "C"], "y": [0.1, None, float("nan")], "n": [1, None, 3]})
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path)
    with open_rows(path) as rows:
        assert rows.columns == ("smiles", "y", "n")
        assert [(row.cells, row.line, row.problem) for row in rows] == [
            (["CCO", "0.1", "1"], None, ""),
            (["", "", ""], None, "the row is empty"),
            (["C", "", "3"], None, ""),
        ]
    path.write_bytes(b"no parquet at all, but long enough to be looked at")
    with pytest.raises(ValueError, match="not a Parquet file"):
        open_rows(path)


def test_parquet_texts_that_are_not_marked_as_such(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"smiles": [b"CCO", None, b"C"], "name": [b"\xc3\xb6", b"\xf6", b""], "y": [1, None, 2]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    with open_rows(tmp_path / "a.parquet") as rows:
        assert [row.cells for row in rows] == [["CCO", "ö", "1"], ["", "ö", ""], ["C", "", "2"]]


def test_a_name_with_no_known_ending_and_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"t\.xlsx: no table is known by this ending; use one of \.csv"):
        open_rows(tmp_path / "t.xlsx")
    with pytest.raises(FileNotFoundError, match=r"t\.csv: there is no such file"):
        open_rows(tmp_path / "t.csv")


def test_the_ending_says_the_format(tmp_path):
    for name, data in {"a.CSV": "smiles\nC\n", "b.tsv.gz": "smiles\nC\n", "c.smi": "C\n", "d.smi.gz": "C\n"}.items():
        raw = data.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
        with open_rows(tmp_path / name) as rows:
            assert [row.cells[0] for row in rows] == ["C"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_stream_keeps_every_row_and_column_in_order(chunk):
    data = "id,SMILES,y\n" + "".join(f"{i},{'C' * i},{i}\n" for i in range(1, 6)) + ",,\n6,C,1\n"
    parts = list(stream_rows(io.BytesIO(data.encode()), chunk=chunk))
    assert [row.number for part in parts for row in part.rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [text for part in parts for text in part.smiles] == ["C", "CC", "CCC", "CCCC", "CCCCC", "", "C"]
    assert parts[0].columns == ("id", "SMILES", "y")
    assert parts[0].rows[0].cells == ["1", "C", "1"]
    assert max(len(part.rows) for part in parts) <= chunk


def test_columns_that_are_not_there_are_answered_with_those_that_are():
    with pytest.raises(ValueError, match=r"which column holds the SMILES\? Its columns are 'a', 'b'\. Name it"):
        list(stream_rows(io.BytesIO(b"a,b\n1,2\n")))
    with pytest.raises(ValueError, match=r"no column 'Smile'.*'smiles', 'y'.*Did you mean 'smiles'"):
        list(stream_rows(io.BytesIO(b"smiles,y\n1,2\n"), smiles_column="Smile"))
    with pytest.raises(ValueError, match=r"2 columns are called 'smiles'"):
        list(stream_rows(io.BytesIO(b"smiles,smiles\n1,2\n"), smiles_column="smiles"))
    with pytest.raises(ValueError, match="`chunk` must be at least 1"):
        list(stream_rows(io.BytesIO(b""), chunk=0))


@pytest.mark.parametrize("format, data", [("csv", "smiles\nCCO\n"), ("smi", "CCO x\n"), ("sdf", SDF)])
def test_standard_input(format, data, monkeypatch):
    pytest.importorskip("rdkit")
    end, begin = os.pipe()
    os.write(begin, data.encode())
    os.close(begin)
    with open(end, encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        assert [part.smiles for part in stream_rows("-", format=format)] == [["CCO"]]
        assert not pipe.buffer.closed


@pytest.mark.slow
def test_a_long_file_is_read_in_bounded_memory(tmp_path):
    path = tmp_path / "long.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("smiles,id,note\n")
        for start in range(0, 300_000, 1000):
            file.write("".join(f"{'C' * (1 + i % 40)},{i},{'x' * 200}\n" for i in range(start, start + 1000)))
    script = (
        "import resource, sys\n"
        "from phcgnn.data.molecules.rows import stream_rows\n"
        "rows = 0\n"
        "for part in stream_rows(sys.argv[1]):\n"
        "    rows += len(part.rows)\n"
        "    if rows == 10 * 1024: before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "sys.stdout.write(f'{rows} {grown}')\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    rows, grown = map(int, done.stdout.split())
    assert rows == 300_000
    assert grown < 8 * 1024, f"{grown} KiB more at the end than after 10,240 rows"


@pytest.mark.parametrize("name", ["a.csv", "a.smi"])
def test_a_table_that_is_left_early_is_left_quietly(tmp_path, name):
    """Python tells on stderr what a forgotten generator raises; pytest makes an error of that."""
    import gc

    path = tmp_path / name
    path.write_text("smiles,y\n" + "C,1\n" * 9 if name.endswith("csv") else "C a\n" * 9)
    with open_rows(path) as rows:
        next(iter(rows))
    del rows
    gc.collect()
    file = io.BytesIO(path.read_bytes())
    with open_rows(file, format=name[2:]) as rows:
        next(iter(rows))
    del rows
    gc.collect()
    assert not file.closed
