"""Every name of the paper's tables, end to end by the command line, on a few graphs and with small networks."""

import csv
import json
import re
import statistics
import tomllib

import pytest
from typer.testing import CliRunner

from phcgnn.cli.main import app
from phcgnn.errors import DataError
from phcgnn.experiments.paper import paper_tables
from phcgnn.experiments.reproduce import note_table, reproduced_tables

from .conftest import SHRINK

CASES = {
    "table1": (["phc-2-c"], ["molhiv-phc2-c", "molpcba-phc2-c"]),
    "table2": (["phc-8-dagger"], ["zinc-100k-phc8-dagger", "zinc-400k-phc8-dagger"]),
    "table3": (["phc-4"], ["molhiv-phc4"]),
    "shallow": (["PHC3"], ["molpcba-shallow-phc3"]),
    "dropout": (["phc-1-star"], ["molpcba-phc1-star"]),
    "large-n": (["phc-8", "phc-8-dagger"], ["molpcba-phc8", "molpcba-phc8-dagger"]),
    "lambda2": (["zinc-400k-phc16-dagger-lambda2-1e-2"], ["zinc-400k-phc16-dagger-lambda2-1e-2"]),
    "timing": (["phc-2"], ["molhiv-phc2", "molpcba-phc2", "zinc-400k-phc2"]),
    "vision": (["phc-4"], ["mnist-phc4", "cifar10-phc4"]),
    "ppa": (["phc-6"], ["ppa-phc6"]),
}


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments), "--device", "cpu", "--no-report", "-q"])


def lines(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown_row(text, label, group):
    """The cells of a model's row, by column."""
    section = text.partition(f"### {group}\n")[2].partition("\n###")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    (row,) = (row for row in rows[2:] if row[0] == label)
    return dict(zip(rows[0], row, strict=True))


def test_every_table_has_a_case():
    assert set(CASES) == set(paper_tables())


@pytest.mark.parametrize("name", CASES)
def test_a_table_in_small(name, tiny_benchmarks, tmp_path):
    models, expected = CASES[name]
    table, out = paper_tables()[name], tmp_path / "out"
    options = ["--models", *models, "--runs", 1, "--epochs", 1, "--root", tiny_benchmarks, "--any-size"]
    result = reproduce(name, "-o", out, *options, *SHRINK)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout.splitlines()[-1])
    assert (said["finished"], said["interrupted"], said["to_do"]) == (len(expected), 0, 0)
    assert [str(out / file) for file in ("results.csv", "table.md", "table.tex")] == said["written"][:3]

    found = lines(out / "results.csv")
    assert [line["row"] for line in found] == expected
    text, latex = (out / "table.md").read_text(), (out / "table.tex").read_text()
    assert f"## {name}: {table.title}" in text
    for line in found:
        (row,) = (row for row in table.rows if row.name == line["row"])
        folder = out / "runs" / line["folder"]
        outcome = json.loads((folder / "result.json").read_text())
        assert (line["table"], line["seed"], line["epochs"]) == (name, "0", "1")
        assert int(line["parameters"]) == outcome["parameters"]
        assert re.search(r"\(\d+ threads\)$", line["device"])
        settings = tomllib.loads((folder / "config.toml").read_text())
        assert settings["model"]["width"] == 48
        for section, changed in row.changes.items():
            assert settings[section] == {**settings[section], **changed}
        if table.timing:
            shown = markdown_row(text, row.label, row.group.title)
            assert shown["s/epoch"] == f"{float(line['seconds_per_epoch']):.2f}"
            assert shown["V100 s/epoch"] == f"{row.numbers['seconds'].mean:.2f}"
            assert line["paper_seconds"] == str(row.numbers["seconds"].mean)
            continue
        label = f"{row.label} (ours)" if table.others else row.label
        shown = markdown_row(text, label, row.group.title)
        assert shown["Runs"] == "1"
        assert shown["Parameters"] == f"{outcome['parameters']:,}"
        assert shown["Paper's"] == (row.parameters or "-")
        unit = 100 if row.group.percent else 1
        for split, title in (("train", "Training"), ("val", "Validation"), ("test", "Test")):
            score = float(line[split])  # every split is scored, whatever the table prints
            if split != "train":
                assert score == pytest.approx(outcome["scores"][split][line["metric"]])
            if split in table.splits:
                ours, theirs = unit * score, row.numbers[split]
                assert shown[f"{title} {row.group.score}"] == row.group.show(ours)
                assert row.group.show(ours) in latex
                assert float(line[f"paper_{split}"]) == pytest.approx(theirs.mean / unit)
                if theirs.std is not None:
                    assert float(line[f"paper_{split}_std"]) == pytest.approx(theirs.std / unit)
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == text.count("\n### ")
    remarks = text.rpartition("|\n")[2]
    assert f"Trained on: {found[0]['device']}; " in remarks
    assert "model.width = 48 instead of" in remarks  # and whatever else the shrinking changed
    assert ("Cut short: epochs were 1 instead of up to" in remarks) == (not table.timing)
    assert all(note in remarks for note in table.notes)


def test_the_other_methods_stand_beside_our_row(tiny_benchmarks, tmp_path):
    options = ["--runs", 1, "--epochs", 1, "--root", tiny_benchmarks, "--any-size", *SHRINK]
    assert reproduce("table3", "-o", tmp_path, "--models", "phc-4", *options).exit_code == 0
    text = (tmp_path / "table.md").read_text()
    for other in paper_tables()["table3"].others:
        shown = markdown_row(text, other.name.replace("|", "\\|"), other.group.title)
        number = other.numbers["test"]
        assert shown["Paper"] == other.group.show(number.mean, number.std)
        assert (shown["Paper's"], shown["Runs"]) == (other.parameters, "-")


def test_mean_deviation_and_distance_to_the_paper_over_seeds(tiny_benchmarks, tmp_path):
    options = ["--runs", 2, "--epochs", 2, "--root", tiny_benchmarks, "--any-size", *SHRINK]
    result = reproduce("table2", "-o", tmp_path, "--models", "zinc-100k-phc4", *options)
    assert result.exit_code == 0, result.output
    found = lines(tmp_path / "results.csv")
    assert [line["seed"] for line in found] == ["0", "1"]
    scores = [float(line["test"]) for line in found]
    assert scores[0] != scores[1]
    mean, std = statistics.mean(scores), statistics.stdev(scores)
    shown = markdown_row((tmp_path / "table.md").read_text(), "PHC-4", "ZINC, 4 layers, 100K")
    assert shown["Test MAE"] == f"{mean:.3f} ± {std:.3f}"
    assert shown["Paper"] == "0.188 ± 0.003"
    assert shown["Δ (s.d.)"] == f"{(mean - 0.188) / 0.003:+.1f}"
    assert shown["Runs"] == "2"


def test_tables_that_share_rows_share_runs(tiny_benchmarks, tmp_path):
    """Table 6 of the paper repeats rows of Table 1: they are trained once."""
    options = ["--runs", 1, "--epochs", 1, "--root", tiny_benchmarks, "--any-size", *SHRINK]
    assert reproduce("table1", "-o", tmp_path, "--models", "molpcba-phc2", *options).exit_code == 0
    run = tmp_path / "runs" / "molpcba-phc2" / "seed-0"
    before = (run / "result.json").stat().st_mtime_ns
    assert reproduce("dropout", "-o", tmp_path, "--models", "phc-2", *options).exit_code == 0
    assert (run / "result.json").stat().st_mtime_ns == before
    assert [(line["table"], line["row"]) for line in lines(tmp_path / "results.csv")] == [
        ("table1", "molpcba-phc2"),
        ("dropout", "molpcba-phc2"),
    ]
    assert [table.name for table in reproduced_tables(tmp_path)] == ["table1", "dropout"]


def test_a_folder_that_is_no_reproductions(tmp_path):
    with pytest.raises(DataError, match=r"there is no reproduction\.json in it; give what `phcgnn reproduce -o` wrote"):
        reproduced_tables(tmp_path)
    note_table(tmp_path, paper_tables()["ppa"])
    note_table(tmp_path, paper_tables()["ppa"])
    assert [table.name for table in reproduced_tables(tmp_path)] == ["ppa"]
    (tmp_path / "reproduction.json").write_text('{"tables": ["table9"]}')
    with pytest.raises(DataError, match="is damaged"):
        reproduced_tables(tmp_path)
