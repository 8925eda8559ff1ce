"""``phcgnn train`` as it is typed: what it prints, what it refuses and when, how it ends."""

import importlib.util
import json
import logging
import math
import os
import statistics
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from phcgnn.cli.main import app
from phcgnn.data import GraphStore
from phcgnn.training.step import TrainingStep

SMALL = ["model.n=2", "model.width=8", "model.layers=1", "model.downstream=[8]", "model.downstream_dropout=0.1"]
FAST = [*(part for setting in SMALL for part in ("--set", setting)), "--epochs", "2", "--batch-size", "8"]


@pytest.fixture(scope="session")
def make_store():
    path = Path(__file__).resolve().parents[1] / "training" / "conftest.py"
    spec = importlib.util.spec_from_file_location("training_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_store


@pytest.fixture
def stored(make_store, tmp_path):
    make_store().save(tmp_path / "tiny.phg")
    return str(tmp_path / "tiny.phg")


@pytest.fixture
def loud():
    """Leave the package's log as it was."""
    log = logging.getLogger("phcgnn")
    before = log.handlers[:], log.level, log.propagate
    yield
    for handler in log.handlers[:]:
        log.removeHandler(handler)
        handler.close()
    log.handlers[:], log.level, log.propagate = before


pytestmark = pytest.mark.usefixtures("loud")


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["train", "--device", "cpu", "--logger", "none", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def said(result):
    """What it wrote to stderr, without the frame that typer draws around a refusal."""
    return " ".join(result.stderr.replace("│", " ").split())


def refused(*arguments, code=2):
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return said(result)


def test_prints_the_result_as_one_json_object_and_progress_as_plain_lines(stored, tmp_path):
    result = run("--data", stored, "-o", tmp_path / "run", *FAST)
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(printed["scores"]) == {"val", "test"}
    lines = result.stderr.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith("epoch")] == ["epoch 1/2", "epoch 2/2"]
    assert all(part in lines[1] for part in ("loss ", "val mae ", "lr ", "graphs/s", " s"))
    assert "done: all 2 epochs are done" in lines[-1]
    assert "\x1b" not in result.stderr  # no terminal, no colours, no redrawing
    assert max(map(len, lines)) < 250


def test_quiet_verbose_and_a_log_file(stored, tmp_path):
    log = tmp_path / "run.log"
    quiet = run("--data", stored, "-o", tmp_path / "quiet", "-q", "--log-file", log, *FAST)
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout)["epochs"] == 2
    written = log.read_text().splitlines()
    assert any("INFO epoch 2/2" in line for line in written)
    assert all(line[:4].isdigit() for line in written)  # each with its time
    assert "saved" not in run("--data", stored, "-o", tmp_path / "usual", *FAST).stderr
    assert "saved" in run("--data", stored, "-o", tmp_path / "verbose", "-v", *FAST).stderr


def test_the_same_seed_prints_the_same(stored, tmp_path):
    one, other, third = (
        json.loads(run("--data", stored, "-o", tmp_path / name, "--seed", seed, *FAST).stdout)
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    )
    assert one["scores"] == other["scores"] != third["scores"]
    first, second = (load_file(tmp_path / name / "weights.safetensors") for name in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_several_runs(stored, tmp_path):
    out = tmp_path / "runs"
    result = run("--data", stored, "-o", out, "--runs", 3, "--seed", 4, *FAST)
    summary = json.loads(result.stdout)
    assert json.loads((out / "result.json").read_text()) == summary
    assert (summary["runs"], summary["seeds"]) == (3, [4, 5, 6])
    single = [json.loads((out / f"seed-{seed}" / "result.json").read_text()) for seed in (4, 5, 6)]
    for split in ("val", "test"):
        for metric, found in summary["scores"][split].items():
            values = [one["scores"][split][metric] for one in single]
            assert found["mean"] == pytest.approx(statistics.mean(values))
            assert found["std"] == pytest.approx(statistics.stdev(values))
    assert "3 runs: test mae" in result.stderr
    assert "+-" in result.stderr
    (out / "figures").mkdir()
    for old in (out / "report.html", out / "figures" / "old.svg"):
        old.write_text("of the runs before")
    run("--data", stored, "-o", out, "--runs", 2, "--seed", 4, "--overwrite", *FAST)
    assert json.loads((out / "result.json").read_text())["seeds"] == [4, 5]
    assert not (out / "report.html").exists()
    assert not (out / "figures").exists()
    alone = json.loads(run("--data", stored, "-o", tmp_path / "alone", "--seed", 5, *FAST).stdout)
    assert alone["scores"] == single[1]["scores"]  # a run does not know of those before it


def test_several_runs_are_resumed(stored, tmp_path, monkeypatch):
    """Broken off in the second of three: the first stays, the second goes on, the third is made."""
    whole, out = tmp_path / "whole", tmp_path / "runs"
    run("--data", stored, "-o", whole, "--runs", 3, *FAST)
    real, steps = TrainingStep.__call__, []

    def out_of_memory(self, batch, lr):
        steps.append(lr)
        if len(steps) == 11:  # 4 a batch, 2 epochs a run: in the first epoch of the second run
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.\nGPU 0 has ...")
        return real(self, batch, lr)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingStep, "__call__", out_of_memory)
        run("--data", stored, "-o", out, "--runs", 3, "--checkpoint-seconds", 0, *FAST, code=1)
    assert (out / "seed-0" / "result.json").exists()
    assert not (out / "seed-1" / "result.json").exists()
    assert not (out / "seed-2").exists()
    before = (out / "seed-0" / "weights.safetensors").stat().st_mtime_ns
    result = run("-o", out, "--resume")  # its own settings.toml says the rest
    assert json.loads(result.stdout) == json.loads((whole / "result.json").read_text())
    assert (out / "seed-0" / "weights.safetensors").stat().st_mtime_ns == before
    for seed in range(3):
        one, other = (load_file(folder / f"seed-{seed}" / "weights.safetensors") for folder in (whole, out))
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_gpu_out_of_memory_says_the_batch_size_and_the_state_is_whole(stored, tmp_path, monkeypatch):
    real, steps = TrainingStep.__call__, []

    def out_of_memory(self, batch, lr):
        steps.append(lr)
        if len(steps) == 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.\nGPU 0 has ...")
        return real(self, batch, lr)

    arguments = ("--data", stored, "-o", tmp_path / "run", "--checkpoint-seconds", 0, *FAST)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingStep, "__call__", out_of_memory)
        message = refused(*arguments, code=1)
    assert "the GPU is out of memory at batch size 8; try --batch-size 4 (CUDA out of memory." in message
    assert len(steps) == 6
    result = run(*arguments, "--resume")
    whole = run("--data", stored, "-o", tmp_path / "whole", *FAST)
    assert json.loads(result.stdout)["scores"] == json.loads(whole.stdout)["scores"]


def test_a_full_disk_is_one_message(stored, tmp_path, monkeypatch):
    real = os.fsync

    def fsync(descriptor):
        if list((tmp_path / "run" / "checkpoints").glob(".last.*")):
            raise OSError(28, "No space left on device")
        return real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    message = refused("--data", stored, "-o", tmp_path / "run", *FAST, code=1)
    assert message.endswith(f"Error: No space left on device: {tmp_path / 'run' / 'checkpoints' / 'last'}")


def test_a_nan_is_one_message(stored, tmp_path):
    message = refused("--data", stored, "-o", tmp_path / "run", *FAST, "--lr", "1e30", "--loss", "mse", code=1)
    assert "NaN or infinite in epoch 1, " in message
    assert "No state had been saved yet. Try a lower learning rate (now 1e+30)" in message


def test_a_finished_run_is_kept(stored, tmp_path):
    arguments = ("--data", stored, "-o", tmp_path / "run", *FAST)
    first = run(*arguments)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert "holds a finished run; give another folder, or --overwrite" in refused(*arguments)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before
    again = run(*arguments, "--resume")
    assert again.stdout == first.stdout
    assert json.loads(run(*arguments, "--overwrite", "--epochs", 1).stdout)["epochs"] == 1


def test_resume_takes_the_runs_own_settings(stored, tmp_path):
    first = run("--data", stored, "-o", tmp_path / "run", *FAST, "--lr", "0.02")
    assert run("-o", tmp_path / "run", "--resume").stdout == first.stdout
    message = refused("-o", tmp_path / "run", "--resume", "--lr", "0.5", code=1)
    assert "training.lr is 0.5, was 0.02" in message
    on_empty = run("--data", stored, "-o", tmp_path / "new", "--resume", *FAST)
    assert "holds nothing to resume; the run starts now" in said(on_empty)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no data: give --data NAME (or a .phg file) or --data-path TABLE"),
        (["--data", "zink"], "unknown data set 'zink'"),
        (["--data", "missing.phg"], "--data missing.phg: there is no such file"),
        (["--data-path", "missing.csv", "--target-columns", "y"], "--data-path missing.csv: there is no such file"),
        (["--data", "zinc", "--preset", "zinc-400k-phc6"], "unknown preset 'zinc-400k-phc6'. Did you mean"),
        (["--data", "zinc", "--set", "model.m=4"], "unknown field 'm'"),
        (["--data", "zinc", "--set", "modle.n=4"], "unknown section 'modle'. Did you mean 'model'"),
        (["--data", "zinc", "--set", "model.n"], "--set takes section.field=value, e.g. model.n=4, got 'model.n'"),
        (["--data", "zinc", "--set", "model.n=four"], "`n` must be an int, got 'four'"),
        (["--data", "zinc", "--set", "model.width=30", "--set", "model.n=4"], "multiple of n=4, got 30"),
        (["--data", "zinc", "--set", "model.targets=2"], "model.targets is 2"),
        (["--data", "zinc", "--metric", "roc_auc"], "'roc_auc', but regression is scored with mae, rmse, r2"),
        (["--data", "molhiv", "--loss", "l1"], "'l1', which does not fit classification; choose from bce, focal"),
        (["--data", "zinc", "--class-balance", "weights"], "class_balance is for classes; this task is regression"),
        (["--data", "zinc", "--loss", "l3"], "unknown loss 'l3'"),
        (["--data", "zinc", "--lr", "-1"], "`lr` must be above 0, got -1"),
        (["--data", "zinc", "--epochs", "0"], "`epochs` must be at least 1, got 0"),
        (["--data", "zinc", "--precision", "fp8"], "`precision` must be"),
        (["--data", "zinc", "--batch-size", "9", "--devices", "2"], "9, which 2 processes cannot share evenly"),
        (["--data", "zinc", "--resume", "--overwrite"], "--resume goes on with a run, --overwrite throws it away"),
        (["--data", "zinc", "--split", "random"], "would do nothing, since zinc comes with its own"),
        (["--data", "zinc", "--logger", "papyrus"], "unknown logger 'papyrus'"),
        (["--data-path", __file__], "a table needs --target-columns"),
        (["--data", "zinc", "--epoch", "3"], "No such option: --epoch"),
    ],
)
def test_wrong_usage_is_one_message_before_any_work(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "--data-path" in arguments:
        pytest.importorskip("rdkit")
    if "zinc" in arguments or "molhiv" in arguments:
        monkeypatch.setattr(GraphStore, "load", None)  # nothing is read
    text = refused(*arguments, "-o", tmp_path / "run")
    assert message in text
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["train", "--data", "zinc", "--device", "cuda", "-o", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "torch sees no GPU; run `phcgnn doctor`" in said(result)


def test_a_store_that_does_not_fit_the_settings_fails_without_a_trace(stored, tmp_path):
    """What only the file itself tells is found when it is opened: exit code 1, and no folder is made."""
    message = refused("--data", stored, "-o", tmp_path / "run", *FAST, "--metric", "roc_auc", code=1)
    assert "'roc_auc', but regression is scored with mae, rmse, r2" in message
    assert not (tmp_path / "run").exists()


def test_a_damaged_store(tmp_path, stored):
    content = Path(stored).read_bytes()
    Path(stored).write_bytes(content[: len(content) // 2])
    message = refused("--data", stored, "-o", tmp_path / "run", *FAST, code=1)
    assert "tiny.phg" in message
    assert not (tmp_path / "run").exists()


def test_a_validation_split_that_nobody_can_score_is_said(make_store, tmp_path):
    store = make_store("classification", targets=("a",))
    store.y[store.splits["val"]] = 1.0
    store.save(tmp_path / "one-class.phg")
    result = run("--data", tmp_path / "one-class.phg", "-o", tmp_path / "run", *FAST)
    assert "no epoch had a validation roc_auc" in said(result)
    assert json.loads(result.stdout)["scores"]["val"]["roc_auc"] is None


def test_flags_go_over_set_over_a_file_over_its_preset(stored, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'inherits = "zinc-100k-phc5"\n[model]\nwidth = 20\nlayers = 1\ndownstream = [10]\ndownstream_dropout = 0.1\n'
    )
    settings = ("--config", file, "--set", "training.lr=0.02", "--set", "training.epochs=9")
    run("--data", stored, "-o", tmp_path / "run", *settings, "--epochs", 1, "--batch-size", 8)
    text = (tmp_path / "run" / "config.toml").read_text()
    for line in ("n = 5", "width = 20", "lr = 0.02", "epochs = 1", "lambda1 = 0.01", f'name = "{stored}"'):
        assert line in text.splitlines(), line


def test_a_table_is_standardised_and_its_targets_come_back(tmp_path):
    pytest.importorskip("rdkit")
    table = tmp_path / "molecules.csv"
    assert CliRunner().invoke(app, ["data", "example", "-o", str(table), "--rows", "60"]).exit_code == 0
    result = run(
        *("--data-path", table, "--target-columns", "plogp", "-o", tmp_path / "run", *FAST),
        *("--split", "random", "--split-fractions", "0.6,0.2,0.2"),
    )
    about = json.loads((tmp_path / "run" / "model.json").read_text())
    assert about["normalisation"]["deviation"][0] > 0
    assert about["featuriser"].startswith("ogb/")
    assert "train 36 / val 12 / test 12" in said(result)
    assert math.isfinite(json.loads(result.stdout)["scores"]["test"]["mae"])
