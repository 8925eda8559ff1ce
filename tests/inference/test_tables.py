from __future__ import annotations

import csv
import gc
import gzip
import io
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from phcgnn.data.flat import FlatGraphs
from phcgnn.data.molecules import Row
from phcgnn.inference import InvalidMolecule, Predictions, Predictor, predict_table

from .conftest import BAD, SMILES, many


@pytest.fixture(scope="module")
def predictor(models):
    return Predictor.load(models["regression"])


def predict(predictor, source, **options):
    """The header, and the rows as dictionaries."""
    text = io.StringIO()
    report = predict_table(predictor, source, text, **options)
    reader = csv.DictReader(io.StringIO(text.getvalue(), newline=""), strict=True)
    rows = list(reader)
    assert report.written == len(rows)
    return reader.fieldnames, rows


def from_bytes(predictor, data: bytes, **options):
    return predict(predictor, io.BytesIO(data), **options)


def test_the_rows_stay_with_the_predictions_beside_them(predictor, table):
    header, rows = predict(predictor, table)
    assert header == ["id", "smiles", "note", "logS", "logP", "error"]
    assert [(row["id"], row["smiles"], row["note"]) for row in rows] == [
        (str(i), smiles, f"note {i}") for i, smiles in enumerate(SMILES)
    ]
    expected = predictor(SMILES).mean
    for i, row in enumerate(rows):
        if i in BAD:
            assert (row["logS"], row["logP"]) == ("", "")
            assert BAD[i] in row["error"]
        else:
            assert row["error"] == ""
            np.testing.assert_allclose([float(row["logS"]), float(row["logP"])], expected[i], rtol=1e-5)


def test_probabilities_classes_and_spread(models, table):
    _, rows = predict(Predictor.load(models["classification"]), table)
    assert all(0 < float(row["active"]) < 1 for i, row in enumerate(rows) if i not in BAD)
    _, rows = predict(Predictor.load(models["multiclass"]), table)
    for i, row in enumerate(rows):
        if i in BAD:
            assert {row[name] for name in ("kind", "kind_acid", "kind_base", "kind_other")} == {""}
            continue
        shares = {name: float(row[f"kind_{name}"]) for name in ("acid", "base", "other")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert row["kind"] == max(shares, key=shares.get)
    ensemble = Predictor.load(models["ensemble"])
    _, rows = predict(ensemble, table)
    found = ensemble(SMILES)
    assert float(rows[0]["logS_std"]) == pytest.approx(float(found.deviation[0, 0]), rel=1e-4)
    assert rows[3]["logS_std"] == ""


def test_what_happens_to_rows_that_cannot_be_predicted(predictor, table):
    _, rows = predict(predictor, table, on_invalid="skip")
    assert [row["id"] for row in rows] == [str(i) for i in range(len(SMILES)) if i not in BAD]
    text = io.StringIO()
    with pytest.raises(InvalidMolecule, match=r"row 4 \(line 5\): not a SMILES that RDKit can read; --on-invalid"):
        predict_table(predictor, table, text, on_invalid="error")
    assert len(text.getvalue().splitlines()) == 4, "what stands before it was written"
    with pytest.raises(ValueError, match="`on_invalid` must be keep, skip or error, got 'drop'"):
        predict_table(predictor, table, io.StringIO(), on_invalid="drop")


def test_every_format_gives_the_same(predictor, tmp_path):
    import pyarrow
    import pyarrow.parquet
    from rdkit import Chem

    smiles = ["CCO", "c1ccccc1O", "CC#N"]
    text = "".join(f"{one}\tm{i}\n" for i, one in enumerate(smiles))
    (tmp_path / "a.csv").write_text("smiles,name\n" + text.replace("\t", ","))
    (tmp_path / "a.tsv").write_text("smiles\tname\n" + text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    (tmp_path / "a.smi").write_text(text)
    pyarrow.parquet.write_table(
        pyarrow.table({"smiles": smiles, "name": ["m0", "m1", "m2"]}), str(tmp_path / "a.parquet")
    )
    with Chem.SDWriter(str(tmp_path / "a.sdf")) as writer:
        for i, one in enumerate(smiles):
            molecule = Chem.MolFromSmiles(one)
            molecule.SetProp("_Name", f"m{i}")
            writer.write(molecule)
    found = {
        path.name: predict(predictor, path)
        for path in map(tmp_path.joinpath, ("a.csv", "a.tsv", "a.csv.gz", "a.smi", "a.parquet", "a.sdf"))
    }
    header, rows = found["a.csv"]
    assert header == ["smiles", "name", "logS", "logP", "error"]
    for name, (columns, others) in found.items():
        assert columns == header, name
        assert [row["name"] for row in others] == ["m0", "m1", "m2"]
        if name != "a.sdf":
            assert others == rows, name
            continue
        for one, other in zip(rows, others, strict=True):  # RDKit writes the SMILES its own way: rounding
            assert float(one["logS"]) == pytest.approx(float(other["logS"]), rel=1e-4)


def test_an_sdf_keeps_fields_structures_that_cannot_be_read_and_those_without_atoms(predictor, tmp_path):
    from ..data.molecules.test_rows import BROKEN, NOTHING, SDF

    (tmp_path / "a.sdf").write_text(SDF + BROKEN + NOTHING)
    header, rows = predict(predictor, tmp_path / "a.sdf")
    assert header == ["smiles", "name", "logS", "note", "logP", "logS_predicted", "logP_predicted", "error"]
    assert [row["note"] for row in rows] == ["two\nlines", "two\nlines", ""]
    assert [bool(row["error"]) for row in rows] == [False, True, False]
    assert float(rows[2]["logS_predicted"]) < 10


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_marks_line_ends_and_quotes(predictor, end, mark):
    data = mark + end.join([b"smiles,note", b'CCO,"a, ""b""\nc"', b'"CC","\xc2\xb5"', b""])
    header, rows = from_bytes(predictor, data)
    assert header == ["smiles", "note", "logS", "logP", "error"]
    assert [row["note"] for row in rows] == ['a, "b"\nc', "µ"]
    assert all(row["logS"] for row in rows)


def test_a_cell_of_ten_megabytes(predictor):
    _, rows = from_bytes(
        predictor, b"smiles,note\nCCO," + b"x" * 10_000_000 + b"\n" + b"C" * 10_000_000 + b",y\nCC,z\n"
    )
    assert len(rows[0]["note"]) == 10_000_000
    assert rows[0]["error"] == ""
    assert "10,000,000 characters" in rows[1]["error"]
    assert rows[2]["logS"]


def test_rows_of_another_width_and_empty_ones_stay_where_they_are(predictor):
    _, rows = from_bytes(predictor, b"smiles,y\nCCO\n\nCC,1,2\nC,3\n\n")
    assert len(rows) == 4
    assert [bool(row["error"]) for row in rows] == [True, True, True, False]
    assert rows[0]["error"].startswith("1 cells, where the header has 2")
    assert rows[1]["error"] == "the row is empty"
    assert [row["y"] for row in rows] == ["", "", "1", "3"]


@pytest.mark.parametrize(
    "data, options, message",
    [
        (b"", {}, "the file is empty"),
        (b"smiles,y\n", {}, "there are no rows in it"),
        (b"SMILES_x,y\nC,1\n", {}, "which column holds the SMILES.*'SMILES_x', 'y'.*--smiles-column"),
        (b"smiles,y\nC,1\n", {"smiles_column": "smile"}, "no column 'smile'.*Did you mean 'smiles'"),
        (b"smiles,smiles\nC,1\n", {"smiles_column": "smiles"}, "2 columns are called 'smiles'"),
    ],
)
def test_an_input_that_cannot_be_used_leaves_no_output(predictor, tmp_path, data, options, message):
    output = tmp_path / "out.csv"
    with pytest.raises(ValueError, match=message):
        predict_table(predictor, io.BytesIO(data), output, **options)
    assert not output.exists()
    output.write_text("precious")
    with pytest.raises(ValueError, match=message):
        predict_table(predictor, io.BytesIO(data), output, overwrite=True, **options)
    assert output.read_text() == "precious"


def test_names_that_are_taken(predictor):
    header, rows = from_bytes(predictor, b"logS,smiles,error\n7,CCO,none\n")
    assert header == ["logS", "smiles", "error", "logS_predicted", "logP", "error_predicted"]
    assert (rows[0]["logS"], rows[0]["error"], rows[0]["error_predicted"]) == ("7", "none", "")


def test_the_same_in_memory_and_in_chunks_of_any_size(predictor):
    smiles = many(200)
    data = ("smiles\n" + "\n".join(smiles) + "\n").encode()
    expected = predictor(smiles).mean
    for chunk in (1, 7, 200, 512):
        _, rows = from_bytes(predictor, data, chunk=chunk, workers=1)
        found = np.array([[float(row["logS"]), float(row["logP"])] for row in rows])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_progress_counts_every_row(predictor):
    data = ("smiles\n" + "\n".join(many(50)) + "\n").encode()
    told = []
    report = predict_table(predictor, io.BytesIO(data), io.StringIO(), chunk=20, progress=told.append)
    assert told == [20, 40, 50]
    assert (report.rows, report.written, report.invalid, report.resumed) == (50, 50, 0, 0)


def test_rows_are_in_the_file_as_soon_as_they_are_known(predictor, tmp_path):
    """Whoever is killed has kept what was there: the file is not held back in memory."""
    output = tmp_path / "out.csv"
    seen = []
    data = ("smiles\n" + "\n".join(many(50)) + "\n").encode()
    predict_table(
        predictor,
        io.BytesIO(data),
        output,
        chunk=10,
        workers=1,
        progress=lambda rows: seen.append((rows, output.read_bytes().count(b"\n") - 1)),
    )
    assert seen == [(10, 10), (20, 20), (30, 30), (40, 40), (50, 50)]


def test_outputs_that_cannot_be(predictor, table, tmp_path):
    for output, error, message in (
        (tmp_path, ValueError, "is a folder"),
        (tmp_path / "out.parquet", ValueError, r"written as CSV; give a name that ends in \.csv"),
        (tmp_path / "out.csv.gz", ValueError, "written as CSV"),
        (tmp_path / "nix" / "out.csv", FileNotFoundError, "there is no folder"),
        (table, ValueError, "is there already"),
    ):
        with pytest.raises(error, match=message):
            predict_table(predictor, table, output)
    (tmp_path / "empty.csv").touch()
    predict_table(predictor, table, tmp_path / "empty.csv")
    before = (tmp_path / "empty.csv").read_text()
    with pytest.raises(ValueError, match="--resume goes on where it stopped, --overwrite starts anew"):
        predict_table(predictor, table, tmp_path / "empty.csv")
    predict_table(predictor, table, tmp_path / "empty.csv", overwrite=True)
    assert (tmp_path / "empty.csv").read_text() == before


def test_the_output_may_not_be_the_input_by_any_name(predictor, table):
    before = table.read_bytes()
    link, hard = table.with_name("link.csv"), table.with_name("hard.csv")
    link.symlink_to(table)
    os.link(table, hard)
    for output in (table, link, hard):
        with pytest.raises(ValueError, match="is the input; give another file"):
            predict_table(predictor, table, output, overwrite=True)
    with table.open("rb") as source, pytest.raises(ValueError, match="is the input"):
        predict_table(predictor, source, link, overwrite=True)
    with table.open("a") as output, pytest.raises(ValueError, match="is the input"):
        predict_table(predictor, table, output)
    assert table.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_an_error_and_no_hang(predictor, table):
    with pytest.raises(OSError, match="No space left"):
        predict_table(predictor, table, "/dev/full")


MEASURE = """
import sys
from pathlib import Path
from phcgnn.inference import Predictor, predict_table

class Molecules:
    '''So many rows, made as they are read.'''
    def __init__(self, rows): self.rows, self.at, self.rest = rows, 0, b"smiles,id\\n"
    def readable(self): return True
    closed = False
    def readinto(self, buffer):
        while len(self.rest) < len(buffer) and self.at < self.rows:
            self.rest += b"".join(b"%s%s,%d\\n" % (b"C" * (i % 9), b"NOSF"[i % 4:i % 4 + 1], i)
                                  for i in range(self.at, min(self.at + 500, self.rows)))
            self.at += 500
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size

def most_resident(process):
    # of this very program: getrusage would count what forked it as well
    found = [line.split()[1] for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(found[0]) // 1024 if found else 0

def workers():
    for listed in Path("/proc/self/task").glob("*/children"):
        yield from (Path("/proc", pid) for pid in listed.read_text().split())

class Count:
    lines = calls = most = 0
    def write(self, text):
        self.lines, self.calls = self.lines + text.count("\\n"), self.calls + 1
        if self.calls % 5 == 0:
            self.most = max([self.most, *map(most_resident, workers())])
    def flush(self): pass
    def fileno(self): raise OSError

predictor = Predictor.load(sys.argv[1])
import io
class Raw(Molecules, io.RawIOBase):
    closed = property(lambda self: False)
rows, count = int(sys.argv[2]), Count()
report = predict_table(predictor, Raw(rows), count, workers=2)
assert report.rows == report.written == rows == count.lines - 1, (report, count.lines)
sys.stdout.write(f"{most_resident(Path('/proc/self'))} {count.most}")
"""


def peaks(folder, rows):
    """Peak resident megabytes of a process that predicts so many rows, and of its largest worker."""
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder), str(rows)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return tuple(map(int, result.stdout.split()))


def test_no_more_rows_are_held_than_are_under_way(predictor):
    """What the slow test below measures, counted: rows and graphs that are alive while a long table goes through."""
    chunk, rows = 10, 800
    data = ("smiles\n" + "\n".join(many(rows)) + "\n").encode()
    alive = []

    def count(done):
        if done % 200 == 0:
            kinds = Counter(map(type, gc.get_objects()))
            alive.append([kinds[Row], kinds[FlatGraphs], kinds[Predictions]])

    gc.collect()
    count(0)
    predict_table(predictor, io.BytesIO(data), io.StringIO(), chunk=chunk, workers=1, progress=count)
    assert len(alive) == 5
    most = np.max(alive[1:], axis=0) - alive[0]
    chunks = torch.get_num_threads() + 6
    assert most[0] <= chunk * chunks
    assert most[1] <= chunks
    assert most[2] <= chunks


@pytest.mark.slow
def test_memory_does_not_grow_with_300_000_rows(models):
    few, many = (peaks(models["regression"], rows) for rows in (20_000, 300_000))
    assert min(few) > 50, "nothing was measured"
    assert many[0] - few[0] < 16, (few, many)
    assert many[1] - few[1] < 16, (few, many)
