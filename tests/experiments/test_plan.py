import json

import pytest

from phcgnn.experiments.paper import paper_tables
from phcgnn.experiments.plan import EXTRA_FILE, parameter_count, plan
from phcgnn.experiments.settings import parse_override

TABLES = paper_tables()


def test_as_many_seeds_as_the_paper_averages(tmp_path):
    runs = plan(TABLES["table1"], tmp_path, models=["phc-4"])
    assert [run.name for run in runs if run.row.group.name == "molhiv"] == [f"molhiv-phc4/seed-{i}" for i in range(10)]
    assert [run.seed for run in runs if run.row.group.name == "molpcba"] == list(range(5))
    assert [run.settings.training.seed for run in runs] == [run.seed for run in runs]
    assert {run.settings.training.epochs for run in runs} == {50, 150}
    assert len(plan(TABLES["table2"], tmp_path)) == 22 * 4


def test_fewer_seeds_epochs_and_other_settings(tmp_path):
    (run,) = plan(
        TABLES["lambda2"],
        tmp_path,
        models=["zinc-400k-phc10-dagger-lambda2-1e-3"],
        runs=1,
        epochs=3,
        root="here",
        overrides=[parse_override("training.batch_size=7"), parse_override("model.layers=2")],
    )
    training = run.settings.training
    assert (training.epochs, training.batch_size, training.lambda2, training.seed) == (3, 7, 1e-3, 0)
    assert (run.settings.model["layers"], run.settings.model["rule_start"]) == (2, "uniform")
    assert (run.settings.data.name, run.settings.data.root) == ("zinc", "here")
    with pytest.raises(ValueError, match=r"--runs: `runs` must be"):
        plan(TABLES["lambda2"], tmp_path, runs=0)


def test_timing_runs_once_and_shortly_apart_from_the_scores(tmp_path):
    runs = plan(TABLES["timing"], tmp_path)
    assert len(runs) == 20
    assert {run.settings.training.epochs for run in runs} == {4}
    assert all(run.timing and run.folder.parent.name == f"timing-{run.row.name}" for run in runs)
    assert plan(TABLES["timing"], tmp_path, epochs=2)[0].settings.training.epochs == 2


def test_status(tmp_path):
    (run,) = plan(TABLES["ppa"], tmp_path)
    assert run.status == "to do"
    run.folder.mkdir(parents=True)
    (run.folder / "config.toml").write_text(run.settings.to_toml())
    assert run.status == "to do"
    (run.folder / "checkpoints").mkdir()
    (run.folder / "checkpoints" / "last").write_text("")
    assert run.status == "interrupted"
    (run.folder / "result.json").write_text("{}")
    assert run.status == "interrupted"  # the training split is not scored yet
    (run.folder / EXTRA_FILE).write_text(json.dumps({}))
    assert run.status == "finished"


def test_runs_of_other_settings_are_not_mixed(tmp_path):
    (run,) = plan(TABLES["ppa"], tmp_path, epochs=3)
    run.folder.mkdir(parents=True)
    (run.folder / "config.toml").write_text(run.settings.to_toml())
    assert plan(TABLES["ppa"], tmp_path, epochs=3, root="elsewhere")[0].status == "to do"  # data may move
    with pytest.raises(ValueError, match=r"seed-0 was made with training\.epochs = 3, but now it would be 250; give"):
        plan(TABLES["ppa"], tmp_path)


@pytest.mark.parametrize(("row", "count"), [("zinc-400k-phc5", 407_766), ("zinc-400k-phc16-dagger", 412_084)])
def test_parameter_count_reads_no_data(row, count, tmp_path):
    run = plan(TABLES["table2"], tmp_path, models=[row], runs=1)[0]
    assert parameter_count(run.settings) == count
