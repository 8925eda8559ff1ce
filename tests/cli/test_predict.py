from __future__ import annotations

import csv
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from phcgnn.cli.main import app
from phcgnn.inference import Predictor, predict_table
from phcgnn.models import released, save_model

from ..inference.conftest import BAD, SMILES, make_model, many, models, table  # noqa: F401

run = CliRunner().invoke


def predict(*arguments, **options):
    return run(app, ["predict", *map(str, arguments)], **options)


def failed(result, message, code=1):
    """One message and no stack trace."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    text = " ".join(result.stderr.replace("│", " ").split())
    assert message in text
    assert "Traceback" not in text
    if code == 1:
        errors = [line for line in result.stderr.splitlines() if line.strip()]
        assert len(errors) == 1, errors
        assert errors[0].startswith("Error: ")


def test_a_file_in_a_file_out(models, table, tmp_path):  # noqa: F811
    output = tmp_path / "out.csv"
    result = predict("--model", models["regression"], "-i", table, "-o", output)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "10 molecules in" in result.stderr
    assert f"{len(BAD)} could not be predicted" in result.stderr
    text = io.StringIO()
    predict_table(Predictor.load(models["regression"]), table, text)
    assert output.read_bytes().decode() == text.getvalue()


def test_to_standard_output_there_is_nothing_but_the_table(models, table):  # noqa: F811
    result = predict("--model", models["ensemble"], "-i", table, "-q")
    assert result.exit_code == 0
    assert result.stderr == ""
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert list(rows[0]) == ["id", "smiles", "note", "logS", "logS_std", "logP", "logP_std", "error"]
    assert [row["smiles"] for row in rows] == SMILES


def test_from_standard_input(models, table):  # noqa: F811
    expected = predict("--model", models["classification"], "-i", table)
    result = predict("--model", models["classification"], "-i", "-", input=table.read_bytes())
    assert result.exit_code == 0, result.stderr
    assert result.stdout == expected.stdout


def test_the_command_gives_what_python_gives(models, tmp_path):  # noqa: F811
    (tmp_path / "a.smi").write_text("\n".join(many(30)))
    result = predict("--model", models["classification"], "-i", tmp_path / "a.smi", "--batch-size", 4, "--workers", 1)
    found = [float(row["active"]) for row in csv.DictReader(io.StringIO(result.stdout))]
    np.testing.assert_allclose(found, Predictor.load(models["classification"])(many(30)).mean[:, 0], rtol=1e-4)


def test_on_invalid(models, table):  # noqa: F811
    result = predict("--model", models["regression"], "-i", table, "--on-invalid", "skip")
    assert len(result.stdout.splitlines()) == 1 + len(SMILES) - len(BAD)
    result = predict("--model", models["regression"], "-i", table, "--on-invalid", "error")
    assert result.exit_code == 1
    assert "Error: row 4 (line 5): not a SMILES" in result.stderr
    assert len(result.stdout.splitlines()) == 4


def test_another_column(models, tmp_path):  # noqa: F811
    path = tmp_path / "in.csv"
    path.write_text("smiles,structure\nx,CCO\n")
    result = predict("--model", models["regression"], "-i", path, "--smiles-column", "structure")
    assert result.stdout.splitlines()[1].endswith(",")
    failed(predict("--model", models["regression"], "-i", path, "--smiles-column", "structur"), "Did you mean")


def test_overwrite_and_resume(models, table, tmp_path):  # noqa: F811
    output = tmp_path / "out.csv"
    arguments = ("--model", models["regression"], "-i", table, "-o", output)
    assert predict(*arguments).exit_code == 0
    whole = output.read_bytes()
    failed(predict(*arguments), "is there already; --resume goes on where it stopped", code=2)
    output.write_bytes(whole[:-30])
    result = predict(*arguments, "--resume")
    assert result.exit_code == 0, result.stderr
    assert output.read_bytes() == whole
    assert "behind the 9 that were there" in result.stderr
    assert predict(*arguments, "--overwrite").exit_code == 0
    assert output.read_bytes() == whole


def test_a_log_file(models, table, tmp_path):  # noqa: F811
    result = predict("--model", models["regression"], "-i", table, "-q", "--log-file", tmp_path / "log")
    assert result.exit_code == 0
    assert "10 molecules in" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["-i", "in.csv"], "Missing option '--model'"),
        (["--model", "m"], "Missing option '--input'"),
        (["--model", "m", "-i", "nix.csv"], "there is no such file"),
        (["--model", "m", "-i", "in.csv", "--on-invalid", "drop"], "must be keep, skip or error, got 'drop'"),
        (["--model", "m", "-i", "in.csv", "--device", "tpu"], "must be auto, cpu or cuda, got 'tpu'"),
        (["--model", "m", "-i", "in.csv", "-o", "there.csv"], "is there already"),
        (["--model", "m", "-i", "in.csv", "-o", "in.csv", "--overwrite"], "is the input; give another file"),
        (["--model", "m", "-i", "in.csv", "-o", "nix/out.csv"], "there is no folder nix"),
        (["--model", "m", "-i", "in.csv", "-o", "."], "is a folder"),
        (["--model", "m", "-i", "in.csv", "-o", "out.parquet"], "predictions are written as CSV"),
        (["--model", "m", "-i", "in.csv", "-o", "a.csv", "--resume", "--overwrite"], "give one of them"),
        (["--model", "m", "-i", "in.csv", "--resume"], "`resume` needs an output file"),
        (["--model", "m", "-i", "in.csv", "--batch-size", "0"], "greater than or equal to 1"),
        (["--model", "m", "-i", "in.csv", "--workers", "0"], "greater than or equal to 1"),
    ],
)
def test_wrong_usage_is_told_before_any_work(arguments, message, table, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "there.csv").write_text("precious")
    before = table.read_bytes()
    failed(predict(*arguments), message, code=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "there.csv"]
    assert (tmp_path / "there.csv").read_text() == "precious"
    assert table.read_bytes() == before


class Deadly:
    def __reduce__(self):
        return os.system, ("touch executed",)


def spoil(folder: Path, how: str) -> None:
    description, weights = folder / "model.json", folder / "weights.safetensors"
    if how == "no description":
        description.unlink()
    elif how == "no weights":
        weights.unlink()
    elif how == "truncated description":
        description.write_text(description.read_text()[:100])
    elif how == "truncated weights":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif how == "altered weights":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif how == "pickle":
        weights.write_bytes(pickle.dumps(Deadly()))
    elif how == "no text":
        description.write_bytes(os.urandom(200))
    elif how == "folder":
        shutil.rmtree(folder)
        folder.write_text("a file")
    else:
        key, value = how.split("=")
        description.write_text(json.dumps(json.loads(description.read_text()) | {key: json.loads(value)}))


@pytest.mark.parametrize(
    "how, message",
    [
        ("no description", "there is no model.json"),
        ("no weights", "there is no weights.safetensors"),
        ("truncated description", "truncated, or no JSON"),
        ("truncated weights", "truncated or altered"),
        ("altered weights", "its digest is not the one"),
        ("pickle", "a pickle, which is never read here"),
        ("no text", "truncated, or no JSON"),
        ("folder", "there is no such folder"),
        ("schema=99", "reads up to 1. Install a newer phcgnn"),
        ("config={}", "the architecture cannot be read"),
        ("config=[]", "the architecture cannot be read"),
        ("dtype=3", "the architecture cannot be read"),
        ("weights=null", "must hold `bytes` and `sha256`"),
        ("task=null", "`task` must be one of"),
        ("targets=[]", "`targets` must be 2 different names"),
        ("normalisation=[1]", "`normalisation` must be"),
        ("featuriser=null", "no featuriser"),
        ('featuriser="ogb/7"', "Use the release that wrote the model"),
    ],
)
def test_a_bad_model_folder_is_one_clear_line(models, table, tmp_path, monkeypatch, how, message):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(models["regression"], tmp_path / "model"))
    spoil(folder, how)
    failed(predict("--model", folder, "-i", table, "-o", tmp_path / "out.csv"), message)
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "executed").exists()


def test_a_model_of_another_kind_of_graph(table, shared_data, tmp_path):  # noqa: F811
    save_model(released.load(shared_data / "reference_weights" / "zinc_phc5_100k.safetensors"), tmp_path / "zinc")
    failed(predict("--model", tmp_path / "zinc", "-i", table), "only models that were trained on molecules")


@pytest.mark.parametrize("data", ["", "smiles\n"])
def test_an_empty_file(models, tmp_path, data):  # noqa: F811
    (tmp_path / "in.csv").write_text(data)
    result = predict("--model", models["regression"], "-i", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    failed(result, "the file is empty" if not data else "there are no rows in it")
    assert not (tmp_path / "out.csv").exists()


def test_a_worker_that_is_gone_is_one_clear_line(models, table, monkeypatch):  # noqa: F811
    from phcgnn.data.molecules.pool import WorkerEnded

    def gone(*_, **__):
        raise WorkerEnded("featurise: a worker process ended")

    monkeypatch.setattr("phcgnn.inference.predictor.Predictor.stream", gone)
    result = predict("--model", models["regression"], "-i", table)
    assert result.exit_code == 1
    assert result.stderr == "Error: featurise: a worker process ended\n"


# What follows needs processes of their own. They are forked from one that has imported everything, which takes long.

NURSERY = """
import gc, json, os, sys
from phcgnn.cli.main import app
import phcgnn.cli.display, phcgnn.inference, phcgnn.data.molecules, phcgnn.training.loop

gc.freeze()  # or each child would visit every object of torch when it ends
for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
    elif (answer := os.fork()) == 0:
        for number, (path, flags) in enumerate(request["ends"]):
            os.dup2(os.open(path, flags | os.O_CREAT), number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        app(request["arguments"])
    sys.stdout.write(f"{answer}\\n")
    sys.stdout.flush()
"""


class Nursery:
    """Starts `phcgnn predict` with its standard streams on files or named pipes."""

    def __init__(self, model):
        self.model, self.children = str(model), []
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "300"},
        )

    def _ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, *arguments, stdin="/dev/null", stdout="/dev/null", stderr="/dev/null", append=False):
        write = os.O_WRONLY | (os.O_APPEND if append else 0)
        ends = [(str(stdin), os.O_RDONLY), (str(stdout), write), (str(stderr), write)]
        self.children.append(self._ask(arguments=["predict", "--model", self.model, *map(str, arguments)], ends=ends))
        return self.children[-1]

    def wait(self, child):
        code = self._ask(wait=child)
        self.children.remove(child)
        return code


@pytest.fixture(scope="module")
def nursery(models):  # noqa: F811
    made = Nursery(models["regression"])
    yield made
    for child in made.children:
        os.kill(child, signal.SIGKILL)
    made.process.kill()
    made.process.communicate()


@pytest.fixture
def fed(nursery, long_table, tmp_path):
    """A process that has had nine tenths of its input and waits for the rest, and its output of some chunks."""
    pipe, output, said = tmp_path / "pipe", tmp_path / "out.csv", tmp_path / "said"
    os.mkfifo(pipe)
    # in one process: with many cores, many chunks would be under way before the first is written
    child = nursery.start("-i", "-", "-o", output, "--workers", 1, stdin=pipe, stderr=said)
    with pipe.open("wb") as feed:
        feed.write(long_table[: len(long_table) * 9 // 10])
        feed.flush()
        deadline = time.monotonic() + 120
        while not output.exists() or output.read_bytes().count(b"\n") < 514:
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.02)
        yield child, output, said


@pytest.fixture(scope="module")
def long_table():
    return "".join(["smiles,n\n", *(f"{smiles},{i}\n" for i, smiles in enumerate(many(2600)))]).encode()


def test_killed_in_the_middle_and_resumed_it_is_byte_equal(models, long_table, nursery, fed, tmp_path):  # noqa: F811
    child, output, _ = fed
    (tmp_path / "in.csv").write_bytes(long_table)
    predict_table(Predictor.load(models["regression"]), tmp_path / "in.csv", tmp_path / "whole.csv", workers=1)
    whole = (tmp_path / "whole.csv").read_bytes()
    os.kill(child, signal.SIGKILL)
    assert nursery.wait(child) == -signal.SIGKILL
    part = output.read_bytes()
    assert whole.startswith(part)
    assert 513 <= part.count(b"\n") < 2600
    for torn in (part, part + whole[len(part) : len(part) + 9], part[:-9]):
        output.write_bytes(torn)
        arguments = ("-i", tmp_path / "in.csv", "-o", output, "--workers", 1, "--resume", "-q")
        result = predict("--model", models["regression"], *arguments)
        assert result.exit_code == 0, result.stderr
        assert output.read_bytes() == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_says_how_to_go_on(nursery, fed, number):
    child, output, said = fed
    os.kill(child, number)
    assert nursery.wait(child) == 1
    assert said.read_text() == "Error: stopped; the same command with --resume goes on from there.\n"
    assert output.read_bytes().endswith(b"\n")


def test_a_reader_that_leaves_is_no_trouble(long_table, nursery, tmp_path):
    (tmp_path / "in.csv").write_bytes(long_table)
    os.mkfifo(tmp_path / "pipe")
    child = nursery.start("-i", tmp_path / "in.csv", "-q", stdout=tmp_path / "pipe", stderr=tmp_path / "said")
    with (tmp_path / "pipe").open("rb") as reader:
        assert reader.readline() == b"smiles,n,logS,logP,error\n"
    assert nursery.wait(child) == 1
    assert (tmp_path / "said").read_text() == ""


def test_the_output_may_not_be_the_input_through_a_redirection(long_table, nursery, tmp_path):
    path, said = tmp_path / "in.csv", tmp_path / "said"
    path.write_bytes(long_table)
    child = nursery.start("-i", "-", "-o", path, "--overwrite", stdin=path, stderr=said)
    assert nursery.wait(child) == 2
    assert "is the input" in said.read_text()
    assert path.read_bytes() == long_table
    said.unlink()
    assert nursery.wait(nursery.start("-i", path, stdout=path, append=True, stderr=said)) == 2
    assert "is the input" in said.read_text()
    assert path.read_bytes() == long_table


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(nursery, table, tmp_path):  # noqa: F811
    said = tmp_path / "said"
    assert nursery.wait(nursery.start("-i", table, stdout="/dev/full", stderr=said)) == 1
    assert said.read_text() == "Error: No space left on device.\n"


def test_an_ensemble_whose_run_did_not_finish(table, tmp_path):  # noqa: F811
    make_model(tmp_path / "runs" / "seed-0")
    (tmp_path / "runs" / "seed-1").mkdir()
    failed(predict("--model", tmp_path / "runs", "-i", table), "seed-1 did not finish")
