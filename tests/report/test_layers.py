import shutil

import pytest
import torch

from phcgnn.experiments.results import finished_runs
from phcgnn.models.folder import load_model
from phcgnn.report.heatmaps import mosaic, rule_maps, weight_maps
from phcgnn.report.layers import LARGEST, State, layers_of, shown_layers
from phcgnn.report.statistics import sparsity


@pytest.fixture(scope="module")
def quaternions(reproduced):
    return finished_runs(reproduced / "runs" / "zinc-100k-phc4")[0].folder


def test_layers_are_the_network_s_at_the_start_and_at_the_end(quaternions):
    model = load_model(quaternions).model
    layers = layers_of(quaternions)
    assert [layer.name for layer in layers][:2] == ["convs.0.transform.linear1", "convs.0.transform.linear2"]
    for layer in layers:
        module = model.get_submodule(layer.name)
        torch.testing.assert_close(layer.end.dense, module.dense_weight())
        assert layer.end.sparsity == pytest.approx(sparsity(module.dense_weight()))
        assert layer.start is not None
        assert layer.start.nearest == ("quaternion", 0.0)
        assert layer.end.nearest[0] == "quaternion"
        assert 0 < layer.end.nearest[1] < 0.2
        difference = layer.end.constants - layer.start.constants
        assert layer.moved == pytest.approx((difference**2).mean().sqrt().item(), rel=1e-5)


def test_a_run_without_its_start_shows_the_end_alone(quaternions, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(quaternions, folder)
    (folder / "start.safetensors").unlink()
    layer = layers_of(folder)[0]
    assert layer.start is None
    assert layer.moved is None
    pytest.importorskip("matplotlib")
    picture = weight_maps("u", layer)
    assert picture.svg.count("<image") == 1
    assert ">start:" not in picture.svg


def test_the_real_rule_and_large_ones_are_not_compared(reproduced):
    real = finished_runs(reproduced / "runs" / "zinc-100k-phc1")[0].folder
    assert all(layer.end.distances == {} and layer.end.nearest is None for layer in layers_of(real))
    n = LARGEST + 1
    assert State(torch.rand(n, n, n), torch.rand(n, 1, 1)).distances == {}
    assert State(torch.rand(2, 3, 3), torch.rand(2, 1, 1)).distances == {}


def test_the_first_and_the_last_layer_that_pass_messages_are_shown(quaternions):
    shown = [layer.name for layer in shown_layers(layers_of(quaternions))]
    assert shown == ["convs.0.transform.linear1", "convs.1.transform.linear2"]


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_a_mosaic_holds_every_matrix_at_its_place(columns):
    matrices = torch.rand(5, 2, 2).numpy()
    sheet = mosaic(matrices, columns)
    assert sheet.shape == (-(-5 // columns) * 3 - 1, columns * 3 - 1)
    for number in range(5):
        row, column = 3 * (number // columns), 3 * (number % columns)
        assert (sheet[row : row + 2, column : column + 2] == matrices[number]).all()
    assert (sheet == sheet).sum() == matrices.size


def test_heat_maps_say_what_they_show(quaternions):
    pytest.importorskip("matplotlib")
    layer = layers_of(quaternions)[0]
    picture = weight_maps("u", layer)
    assert picture.title == "U of layer 1, linear 1, 16 x 16"
    assert f"start: s(U) = {layer.start.sparsity:.4f}" in picture.svg
    assert f"trained: s(U) = {layer.end.sparsity:.4f}" in picture.svg
    assert picture.svg.count("<image") == 2
    assert rule_maps("c", layer).title == "Rule of layer 1, linear 1: C₁ to C₄, 4 x 4 each"
