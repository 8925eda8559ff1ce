from __future__ import annotations

import io

import pytest

from phcgnn.errors import DataError
from phcgnn.inference import Predictor, predict_table
from phcgnn.inference import tables as module
from phcgnn.inference.resume import whole_rows

from .conftest import many

CHUNK = 16


@pytest.fixture(scope="module")
def predictor(models):
    return Predictor.load(models["regression"])


def write_input(path, smiles):
    """Cells with quotes, commas and line breaks, so that a cut may fall into each of them."""
    rows = [f'{i},"{text}","a ""quoted"", note\nof {i} µ"' for i, text in enumerate(smiles)]
    path.write_bytes(("id,smiles,note\r\n" + "\r\n".join(rows) + "\r\n").encode())
    return path


def run(predictor, source, output, **options):
    return predict_table(predictor, source, output, chunk=CHUNK, workers=1, **options)


@pytest.fixture
def case(predictor, tmp_path):
    """An input, its whole output, and where an interrupted one may lie."""
    smiles = many(60)
    smiles[20] = smiles[33] = smiles[59] = "C1CC"
    source = write_input(tmp_path / "in.csv", smiles)
    run(predictor, source, tmp_path / "whole.csv")
    return source, (tmp_path / "whole.csv").read_bytes(), tmp_path / "part.csv"


@pytest.mark.parametrize(
    "text, expected",
    [
        (b"", (0, 0)),
        (b"a,b", (0, 0)),
        (b"a,b\n", (1, 4)),
        (b"a,b\n1,2", (1, 4)),
        (b'a,b\n"1\n', (1, 4)),
        (b'a,b\n"1\n",2\n', (2, 11)),
        (b'a,b\n"1"",2\n', (1, 4)),
    ],
)
def test_whole_rows(text, expected):
    assert whole_rows(io.BytesIO(text)) == expected


def test_an_output_cut_off_anywhere_ends_byte_equal(case, predictor):
    source, whole, part = case
    for cut in [*range(0, 40, 3), *range(40, len(whole), 211), len(whole) - 1, len(whole)]:
        part.write_bytes(whole[:cut])
        report = run(predictor, source, part, resume=True)
        assert part.read_bytes() == whole, cut
        assert report.written + report.resumed == 60


def test_only_the_last_chunk_is_predicted_again(case, predictor, monkeypatch):
    source, whole, part = case
    part.write_bytes(b"".join(whole.splitlines(keepends=True)[:81]))  # 40 rows of two lines behind the header
    predicted = []
    stream = Predictor.stream

    def spy(self, smiles, **options):
        return stream(self, (predicted.append(text) or text for text in smiles), **options)

    monkeypatch.setattr(Predictor, "stream", spy)
    report = run(predictor, source, part, resume=True)
    assert len(predicted) == 60 - 32
    assert (report.resumed, report.written) == (40, 20)
    assert part.read_bytes() == whole


def test_there_is_nothing_to_resume_yet(case, predictor):
    source, whole, part = case
    assert run(predictor, source, part, resume=True).resumed == 0
    assert part.read_bytes() == whole


def test_rows_left_out_stay_left_out(case, predictor, tmp_path):
    source, _, part = case
    run(predictor, source, tmp_path / "skipped.csv", on_invalid="skip")
    whole = (tmp_path / "skipped.csv").read_bytes()
    assert whole.count(b"quoted") == 57
    for cut in range(0, len(whole) + 1, 307):
        part.write_bytes(whole[:cut])
        run(predictor, source, part, resume=True, on_invalid="skip")
        assert part.read_bytes() == whole, cut


def test_after_an_invalid_row_stopped_it_the_mended_input_goes_on(case, predictor, tmp_path):
    source, _, part = case
    with pytest.raises(module.InvalidMolecule, match=r"row 21 \(line 43\): not a SMILES.*--on-invalid keep or skip"):
        run(predictor, source, part, on_invalid="error")
    assert part.read_bytes().count(b"quoted") == 20
    mended = write_input(tmp_path / "mended.csv", many(60))
    assert run(predictor, mended, part, on_invalid="error", resume=True).resumed == 20
    run(predictor, mended, tmp_path / "whole.csv", overwrite=True)
    assert part.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("rows", [5, 16, 40, 60])
def test_an_output_of_other_work_is_refused_and_left_as_it_is(case, predictor, models, tmp_path, rows):
    source, whole, part = case
    before = b"".join(whole.splitlines(keepends=True)[: 2 * rows + 1])
    part.write_bytes(before)
    other = write_input(tmp_path / "other.csv", ["N", *many(60)])
    with pytest.raises(DataError, match="row 1 of the input is not what stands there"):
        run(predictor, other, part, resume=True)
    shorter = write_input(tmp_path / "shorter.csv", many(3))
    with pytest.raises(DataError, match="ends before what stands there does"):
        run(predictor, shorter, part, resume=True)
    with pytest.raises(DataError, match=r"written by another model: for row \d+"):
        run(Predictor([models["ensemble"] / "seed-1"]), source, part, resume=True)
    with pytest.raises(DataError, match="its columns are not those that this input and model give"):
        run(Predictor.load(models["ensemble"]), source, part, resume=True)
    assert part.read_bytes() == before


def test_a_row_that_is_missing_is_noticed(case, predictor):
    source, whole, part = case
    lines = whole.splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:11] + lines[13:81]))
    with pytest.raises(DataError, match="row 6 of the input is not what stands there"):
        run(predictor, source, part, resume=True)
    with pytest.raises(DataError, match="row 6 of the input is missing"):
        run(predictor, source, part, resume=True, on_invalid="skip")


def test_resume_and_overwrite_exclude_each_other_and_need_a_file(case, predictor):
    source, _, part = case
    with pytest.raises(ValueError, match="give one of them"):
        run(predictor, source, part, resume=True, overwrite=True)
    with pytest.raises(ValueError, match="needs an output file"):
        run(predictor, source, io.StringIO(), resume=True)
