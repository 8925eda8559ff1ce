from __future__ import annotations

import pytest
import torch

from phcgnn.experiments.bench import FEATURES, Runner, Work, prediction, short_bench, synthetic_store, training
from phcgnn.experiments.timing import interleave, median_ratio, peak_bytes
from phcgnn.training.captured import CapturedStep
from phcgnn.training.objective import Objective
from phcgnn.training.step import TrainingStep


@pytest.mark.parametrize("data", FEATURES)
def test_made_up_graphs_are_of_the_right_size(data):
    store = synthetic_store(data, 40)
    nodes, edges = int(store.node_ptr[-1]) / 40, int(store.edge_ptr[-1]) / 40
    usual = (243, 2266) if data == "ppa" else (24, 52)
    assert nodes == pytest.approx(usual[0], rel=0.1)
    assert edges == pytest.approx(usual[1], rel=0.1)
    batch = store.batch(range(40))
    back = batch.edge_index.flip(0)
    assert {tuple(e) for e in back.T.tolist()} == {tuple(e) for e in batch.edge_index.T.tolist()}


def test_made_up_graphs_are_what_was_asked_for():
    store = synthetic_store("zinc", 30, nodes=10, edges=60, targets=3)
    assert store.y.shape == (30, 3)
    assert int(store.edge_ptr[-1]) == pytest.approx(1800, rel=0.1)
    assert torch.equal(store.y, synthetic_store("zinc", 30, nodes=10, edges=60, targets=3).y)


def test_a_step_trains():
    work = Work.from_preset("zinc-100k-phc5", width=20, downstream=[10], downstream_dropout=0.0, batch_size=15)
    runner = training(work, synthetic_store("zinc", 40))
    before = [p.detach().clone() for p in runner.network.parameters()]
    loss, count = runner.step()
    assert (runner.graphs, int(count)) == (15, 15)
    assert torch.isfinite(loss)
    assert all(not torch.equal(a, b) for a, b in zip(before, runner.network.parameters(), strict=True) if a.any())


def test_a_path_that_was_given_up_while_running_is_not_called_fast():
    work = Work.from_preset("zinc-100k-phc5", width=20, downstream=[10], downstream_dropout=0.0, batch_size=15)
    plain = training(work, synthetic_store("zinc", 40))
    assert (plain.why_plain, plain.compiled) == ("a CPU replays nothing", False)
    network = plain.network
    step = TrainingStep(network, torch.optim.Adam(network.parameters(), lr=torch.tensor(0.1)), Objective(loss="l1"))
    fast = CapturedStep(step, recorder=object(), compile=lambda update: update)
    runner = Runner(plain.step, network, 15, None, fast)
    assert (runner.why_plain, runner.compiled) == ("no batch was padded", False)
    fast._replay = lambda: None
    assert (runner.why_plain, runner.compiled) == (None, True)
    fast._update = None
    assert (runner.why_plain, runner.compiled) == (None, False)
    fast._give_up(ValueError("why"))
    assert (runner.why_plain, runner.compiled) == ("ValueError: why", False)


def test_prediction_takes_batch_after_batch():
    work = Work.from_preset("molhiv-phc4", width=20, downstream=[8], downstream_dropout=0.0, batch_size=8)
    store = synthetic_store("molhiv", 12)
    run = prediction(training(work, store).network, store, 8)
    assert [len(run()) for _ in range(4)] == [8, 4, 8, 4]


def test_a_change_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="unknown field 'widht'"):
        Work.from_preset("zinc-100k-phc5", widht=20)


def test_short_form():
    (line,) = short_bench(["zinc-100k-phc5"], seconds=0.2, graphs=32)
    assert (line["n"], line["parameters"], line["batch_size"]) == (5, 106291, 32)
    assert line["training_graphs_per_second"] == pytest.approx(32e3 / line["step_ms"], rel=0.01)
    assert line["prediction_graphs_per_second"] > 0
    assert line["step_to_dense"] > 0


def test_interleaved_times_and_memory():
    x = torch.ones(1000)
    steps = {"one": lambda: x + 1, "two": lambda: (x + 1) + (x + 2)}
    times = interleave(steps, rounds=3, seconds=0.01, cuda=False)
    assert {name: len(values) for name, values in times.items()} == {"one": 3, "two": 3}
    assert median_ratio({"a": [2.0, 4.0], "b": [1.0, 1.0]}, "a", "b") == 3
    assert peak_bytes(steps["one"], cuda=False) >= 4000
