"""Tables drawn from run folders that are written by hand: every figure can be reckoned up on paper."""

import json

import pytest

from phcgnn.errors import DataError
from phcgnn.experiments.comparison import compare, notes, to_latex, to_markdown
from phcgnn.experiments.paper import paper_tables
from phcgnn.experiments.plan import EXTRA_FILE, plan
from phcgnn.experiments.results import collect, results_rows
from phcgnn.experiments.settings import parse_override


def finish(run, *, val=0.5, test=0.5, train=0.5, seconds=(9.0, 1.0, 3.0), sizes=None):
    """What a finished run leaves behind."""
    config = run.settings.training
    metric = {"zinc": "mae", "molhiv": "roc_auc", "molpcba": "average_precision"}[run.settings.data.name]
    result = {"seed": run.seed, "metric": metric, "parameters": 1234, "best_epoch": 1, "epochs": len(seconds)}
    result |= {"scores": {"val": {metric: val}, "test": {metric: test}}, "seconds": sum(seconds), "ended": "done"}
    run.folder.mkdir(parents=True)
    (run.folder / "result.json").write_text(json.dumps(result))
    (run.folder / EXTRA_FILE).write_text(json.dumps({"device": "CPU (2 threads)", "train": {metric: train}}))
    (run.folder / "config.toml").write_text(run.settings.to_toml())
    (run.folder / "metrics.csv").write_text("epoch,seconds\n" + "".join(f"{i},{s}\n" for i, s in enumerate(seconds)))
    if sizes is not None:
        splits = {name: list(range(count)) for name, count in zip(("train", "val", "test"), sizes, strict=True)}
        (run.folder / "splits.json").write_text(json.dumps(splits))
    assert config.seed == run.seed


def table_of(name, out, **options):
    table = paper_tables()[name]
    return table, plan(table, out, **options)


def texts(grid):
    return [[cell.text for cell in row] for row in grid.rows]


def test_mean_deviation_and_distance(tmp_path):
    table, runs = table_of("table2", tmp_path, models=["zinc-400k-phc5"])
    for run, score in zip(runs, (0.160, 0.164, 0.168, 0.172), strict=True):
        finish(run, test=score)
    results = collect(table, tmp_path)
    (grid,) = compare(table, results)
    assert grid.title == "ZINC, 16 layers, 400K"
    assert grid.columns == ("Model", "Runs", "Parameters", "Paper's", "Test MAE", "Paper", "Δ (s.d.)")
    assert texts(grid) == [["PHC-5", "4", "1,234", "408K", "0.166 ± 0.005", "0.164 ± 0.003", "+0.7"]]
    assert [cell.kind for cell in grid.rows[0]][-3:] == ["ours", "paper", "inside"]
    assert grid.rows[0][3].value == 408_000
    remarks = notes(table, results)
    assert not any("Cut short" in remark or "Fewer runs" in remark for remark in remarks)
    assert "Trained on: CPU (2 threads)." in remarks


def test_percent_and_outside(tmp_path):
    table, (run,) = table_of("table1", tmp_path, models=["molhiv-phc4"], runs=1)
    finish(run, test=0.77)
    results = collect(table, tmp_path)
    (grid,) = compare(table, results)
    assert texts(grid) == [["PHC-4", "1", "1,234", "111K", "77.00", "79.34 ± 1.16", "-2.0"]]
    assert grid.rows[0][-1].kind == "outside"
    assert any("Fewer runs than the paper averages" in remark for remark in notes(table, results))
    (line,) = results_rows(table, results)
    assert (line["test"], line["paper_test"], line["paper_test_std"]) == (0.77, 0.7934, 0.0116)
    assert (line["best_epoch"], line["row"], line["folder"]) == (2, "molhiv-phc4", "molhiv-phc4/seed-0")


def test_all_splits(tmp_path):
    table, (run,) = table_of("shallow", tmp_path, models=["phc-4"], runs=1)
    finish(run, train=0.1608, val=0.1886, test=0.1803)
    (grid,) = compare(table, collect(table, tmp_path))
    assert texts(grid)[0][4:] == [
        *("16.08", "16.08 ± 0.15", "+0.0"),
        *("18.86", "18.74 ± 0.12", "+1.0"),
        *("18.03", "18.31 ± 0.14", "-2.0"),
    ]


def test_times_are_medians_without_the_first_epoch_and_relative_to_phc_1(tmp_path):
    table, runs = table_of("timing", tmp_path, models=["molhiv-phc1", "molhiv-phc4"])
    finish(runs[0], seconds=(90.0, 2.0, 1.0, 30.0))
    finish(runs[1], seconds=(90.0, 5.0, 4.0, 3.0))
    results = collect(table, tmp_path)
    (grid,) = compare(table, results)
    assert grid.columns == ("Model", "s/epoch", "times PHC-1", "V100 s/epoch", "V100 times PHC-1")
    assert texts(grid) == [["PHC-1", "2.00", "1.00", "15.64", "1.00"], ["PHC-4", "4.00", "2.00", "24.62", "1.57"]]
    assert [line["seconds_per_epoch"] for line in results_rows(table, results)] == [2.0, 4.0]
    assert not any("Cut short" in remark for remark in notes(table, results))
    assert collect(paper_tables()["table1"], tmp_path)[0].runs == ()  # times are no scores


def test_times_without_phc_1(tmp_path):
    table, runs = table_of("timing", tmp_path, models=["molhiv-phc4"])
    finish(runs[0], seconds=(7.0,))
    assert texts(compare(table, collect(table, tmp_path))[0]) == [["PHC-4", "7.00", "-", "24.62", "1.57"]]


def test_what_departs_from_the_paper_is_said(tmp_path):
    table, (run,) = table_of("table2", tmp_path, models=["zinc-100k-phc5"], runs=1, epochs=2)
    finish(run, sizes=(12, 8, 8))
    remarks = notes(table, collect(table, tmp_path))
    assert any("Cut short: epochs were 2 instead of up to 1000" in remark for remark in remarks)
    assert any("zinc data were not of the published size, but 12 train, 8 val, 8 test" in remark for remark in remarks)
    assert set(table.notes) < set(remarks)


def test_other_settings_are_said(tmp_path):
    changes = [parse_override("training.lr=0.5"), parse_override("model.width=20")]
    table, (run,) = table_of("table2", tmp_path, models=["zinc-100k-phc5"], runs=1, epochs=2, overrides=changes)
    finish(run)
    (remark,) = [one for one in notes(table, collect(table, tmp_path)) if "Other settings" in one]
    assert "model.width = 20 instead of 200" in remark
    assert "training.lr = 0.5 instead of 0.001" in remark
    assert "epochs" not in remark  # which are said to be cut short
    assert "seed" not in remark


def test_data_of_another_size_in_a_later_run_are_said(tmp_path):
    table, runs = table_of("table2", tmp_path, models=["zinc-100k-phc5"], runs=3)
    for run, sizes in zip(runs, [(10_000, 1_000, 1_000), (12, 8, 8), (13, 8, 8)], strict=True):
        finish(run, sizes=sizes)
    remarks = notes(table, collect(table, tmp_path))
    assert any("published size, but 12 train, 8 val, 8 test; or 13 train, 8 val, 8 test;" in one for one in remarks)
    (remark,) = [one for one in remarks if "different data" in one]
    assert "The runs of zinc-100k-phc5" in remark
    assert "seed-0: 10,000 train, 1,000 val, 1,000 test; seed-1: 12 train" in remark


def test_the_machine_and_the_days_are_said(tmp_path):
    table, runs = table_of("table2", tmp_path, models=["zinc-100k-phc5"], runs=2)
    for day, run in zip(("2026-11-02", "2026-11-01"), runs, strict=True):
        finish(run)
        (run.folder / EXTRA_FILE).write_text(json.dumps({"device": "Some GPU", "date": day}))
    assert "Trained on: Some GPU; 2026-11-01 to 2026-11-02." in notes(table, collect(table, tmp_path))


@pytest.mark.parametrize("text", ["", "[]", '{"seed": 0}', '{"seed": "x"'])
def test_a_damaged_result_is_named(tmp_path, text):
    table, (run,) = table_of("table2", tmp_path, models=["zinc-100k-phc5"], runs=1)
    finish(run)
    (run.folder / "result.json").write_text(text)
    with pytest.raises(DataError, match=r"seed-0/result\.json is damaged"):
        compare(table, collect(table, tmp_path))


@pytest.mark.parametrize("text", ["epoch,seconds\n0,text\n", "epoch,seconds\n0\n", "epoch\n0,1\n"])
def test_damaged_metrics_are_named(tmp_path, text):
    table, (run,) = table_of("timing", tmp_path, models=["molhiv-phc1"])
    finish(run)
    (run.folder / "metrics.csv").write_text(text)
    with pytest.raises(DataError, match=r"seed-0/metrics\.csv is damaged"):
        compare(table, collect(table, tmp_path))


def test_the_published_size_is_not_worth_a_word(tmp_path):
    table, (run,) = table_of("table2", tmp_path, models=["zinc-100k-phc5"], runs=1)
    finish(run, sizes=(10_000, 1_000, 1_000))
    assert not any("published size" in remark for remark in notes(table, collect(table, tmp_path)))


def test_drawn_as_markdown_and_latex(tmp_path):
    table, (run, *_) = table_of("lambda2", tmp_path, models=["zinc-400k-phc16-dagger-lambda2-1e-2"])
    finish(run, test=0.17, val=0.18, train=0.16)
    results = collect(table, tmp_path)
    grids, remarks = compare(table, results), notes(table, results)
    text = to_markdown(table, grids, remarks)
    assert "The paper's Table 9 (tab: zinc-lambda2)." in text
    assert "| PHC-16-†, λ₂ = 1e-2 | 1 | 1,234 | 412K | 0.160 | 0.151 ± 0.012 | +0.8 |" in text
    latex = to_latex(table, grids, remarks)
    assert r"PHC-16-$\dagger$, $\lambda_2$ = 1e-2 & 1 & 1,234 & 412K & 0.160 & 0.151 $\pm$ 0.012 & +0.8" in latex
    assert r"$\Delta$ (s.d.) \\" in latex
    assert all(line.isascii() for line in latex.splitlines() if not line.startswith("%"))
    table, (run, *_) = table_of("table1", tmp_path, models=["molhiv-phc4"])
    finish(run)
    assert r"Test ROC-AUC (\%)" in to_latex(table, compare(table, collect(table, tmp_path)), ())


@pytest.mark.parametrize(("text", "value"), [("313K", 313e3), ("3.15M", 3.15e6), ("3,336K", 3336e3)])
def test_printed_counts_sort_as_numbers(text, value):
    others = {other.parameters: other for table in paper_tables().values() for other in table.others}
    rows = {row.parameters for table in paper_tables().values() for row in table.rows}
    assert text in others or text in rows
    from phcgnn.experiments import comparison

    assert comparison._count(text) == pytest.approx(value)
