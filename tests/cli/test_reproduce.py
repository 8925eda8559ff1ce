import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phcgnn.cli.main import app

from ..experiments.conftest import SHRINK, tiny_benchmarks  # noqa: F401 (a fixture)

FEW = ["--runs", "1", "--epochs", "1", "--any-size", "--device", "cpu", "--no-report", "-q", *SHRINK]


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def plain(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table9"], "unknown table 'table9'"),
        (["tabel2"], "Did you mean 'table2'?"),
        (["table2", "--models", "phc-6"], "unknown model 'phc-6'"),
        (["table2", "--models", "phc-1", "molhiv-phc1"], "unknown model 'molhiv-phc1'"),
        (["timing", "--jobs", 2], "timing measures one run at a time; leave out --jobs."),
        (["table2", "--runs", 0], "--runs"),
        (["table2", "--set", "model.widht=8"], "Did you mean 'width'"),
        (["table2", "--set", "width=8"], "section.field=value"),
        (["table2", "--device", "tpu"], "tpu"),
        (["table2", "--threads", 0], "--threads"),
        (["table2", "--models"], "names of rows must follow"),
        (["table2", "--models", "--runs", 1], "names of rows must follow"),
        (["table2", "--models", ""], "names of rows must follow"),
        (["table2", "--models="], "names of rows must follow"),
    ],
)
def test_wrong_usage_is_noticed_before_anything_is_done(arguments, message, tmp_path):
    result = reproduce(*arguments, "-o", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert message in plain(result.output)
    assert not (tmp_path / "out").exists()


def test_models_takes_several_values(tmp_path):
    for models in (["--models", "phc-1", "phc-4"], ["--models", "phc-1,phc-4"], ["--models=phc-1", "phc-4"]):
        result = reproduce("table2", "-o", tmp_path, *models, "--root", tmp_path, *FEW, "--dry-run")
        assert result.exit_code == 0, result.output
        rows = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("zinc-")]
        assert rows == ["zinc-100k-phc1", "zinc-100k-phc4", "zinc-400k-phc1", "zinc-400k-phc4"]


def test_a_dry_run_counts_and_estimates_and_trains_nothing(tiny_benchmarks, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    options = ["--models", "zinc-100k-phc5", "--runs", 3, "--root", tiny_benchmarks, "--any-size", "--device", "cpu"]
    result = reproduce("table2", "-o", out, *options, "--dry-run")
    assert result.exit_code == 0, result.output
    header, line, summary = result.stdout.splitlines()
    assert header.split() == ["row", "parameters", "runs", "left", "s/step", "s/epoch", "hours"]
    name, parameters, runs, left, step, epoch, hours = line.split()
    assert (name, parameters, runs, left) == ("zinc-100k-phc5", "106,291", "3", "3")
    assert 0 < float(step) <= float(epoch) + 0.05  # one step an epoch, and the validation; as rounded
    assert float(hours) == pytest.approx(3 * 1000 * float(epoch) / 3600, abs=3 * 1000 * 0.05 / 3600 + 0.005)
    assert summary.startswith("At most ")
    assert not out.exists()


def test_a_dry_run_measures_what_would_run(tiny_benchmarks, tmp_path, monkeypatch):  # noqa: F811
    asked = []

    def train(*arguments, runtime, observer, **options):
        asked.append((runtime.compile, runtime.threads))
        observer.seconds.append(1.0)

    monkeypatch.setattr("phcgnn.experiments.estimate.train", train)
    options = ["--models", "zinc-100k-phc5", "--root", tiny_benchmarks, "--any-size", "--device", "cpu", "--dry-run"]
    assert reproduce("table2", "-o", tmp_path, *options, "--no-compile", "--threads", 1).exit_code == 0
    assert reproduce("table2", "-o", tmp_path, *options).exit_code == 0
    assert asked == [(False, 1), (True, None)]


def test_what_was_written_is_what_is_said_to_be(tiny_benchmarks, tmp_path):  # noqa: F811
    (tmp_path / "report.html").write_text("of yesterday")
    options = ["--models", "zinc-100k-phc4", "--root", tiny_benchmarks, *FEW]
    written = json.loads(reproduce("table2", "-o", tmp_path, *options).stdout)["written"]
    assert written == [str(tmp_path / name) for name in ("results.csv", "table.md", "table.tex")]
    options.remove("--no-report")
    written = json.loads(reproduce("table2", "-o", tmp_path, *options).stdout)["written"]
    assert written == [str(tmp_path / name) for name in ("results.csv", "table.md", "table.tex", "report.html")]
    assert (tmp_path / "report.html").read_text() != "of yesterday"


def test_a_dry_run_without_the_data(tmp_path):
    result = reproduce("table1", "-o", tmp_path / "out", "--models", "phc-4", "--root", tmp_path, "--dry-run")
    assert result.exit_code == 0, result.output
    assert ["molhiv-phc4", "110,909", "10", "10"] in [line.split() for line in result.stdout.splitlines()]
    assert "No time is given for molhiv, molpcba: there are no such data under --root." in result.stdout
    assert "At most" not in result.stdout


def test_finished_runs_are_not_repeated_and_dry_runs_see_them(tiny_benchmarks, tmp_path):  # noqa: F811
    options = ["--models", "zinc-100k-phc4", "--root", tiny_benchmarks, *FEW]
    first = reproduce("table2", "-o", tmp_path, *options)
    assert first.exit_code == 0, first.output
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    table = (tmp_path / "table.md").read_text()
    again = reproduce("table2", "-o", tmp_path, *options)
    assert (again.exit_code, json.loads(again.stdout)["finished"]) == (0, 1)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == before
    assert (tmp_path / "table.md").read_text() == table
    dry = reproduce("table2", "-o", tmp_path, *options, "--dry-run").stdout.splitlines()
    assert dry[1].split()[2:] == ["1", "0"]
    other = reproduce("table2", "-o", tmp_path, *options, "--set", "training.lr=0.5")
    assert other.exit_code == 2
    assert "was made with training.lr = 0.001, but now it would be 0.5" in plain(other.output)


def test_a_failure_is_named_and_the_rest_is_written(tiny_benchmarks, tmp_path):  # noqa: F811
    blocked = tmp_path / "runs" / "mnist-phc4" / "seed-0"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the run should be")
    result = reproduce("vision", "-o", tmp_path, "--models", "phc-4", "--root", tiny_benchmarks, *FEW)
    assert result.exit_code == 1
    assert "Error: mnist-phc4/seed-0: " in result.output
    assert "is a file; give a folder for the run" in plain(result.output)
    assert (tmp_path / "results.csv").read_text().splitlines()[1].startswith("vision,cifar10-phc4,PHC-4,")


def test_the_time_limit_leaves_with_a_message(tiny_benchmarks, tmp_path):  # noqa: F811
    options = ["--models", "zinc-100k-phc4", "--root", tiny_benchmarks, *FEW, "--time-limit", 0]
    result = reproduce("table2", "-o", tmp_path, *options)
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[0])["to_do"] == 1
    assert "stopped by the time limit; everything is saved, and the same command goes on from there." in result.output


def test_data_of_another_size_need_a_word(tiny_benchmarks, tmp_path):  # noqa: F811
    few = [option for option in FEW if option != "--any-size"]
    result = reproduce("ppa", "-o", tmp_path, "--root", tiny_benchmarks, *few)
    assert result.exit_code == 1
    assert "is not the published data set (train 12 of 78,200" in plain(result.output)
    assert "give --any-size" in plain(result.output)


def test_the_page_about_it_names_every_table():
    from phcgnn.experiments.paper import paper_tables

    page = (Path(__file__).resolve().parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in paper_tables())
