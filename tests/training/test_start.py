import pytest
import torch

from phcgnn import PHCGNN
from phcgnn.errors import DataError
from phcgnn.training.start import load_start, save_start

NETWORK = {"node_features": (5,), "edge_features": (3,), "n": 2, "width": 8, "layers": 1, "downstream": (8,)}


def test_round_trip_leaves_the_network_alone(tmp_path):
    model = PHCGNN(**NETWORK)
    save_start(model, tmp_path / "start")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    start = load_start(model, tmp_path / "start")
    assert not start.training
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name] + 1.0)


def test_a_damaged_file_says_what_to_do(tmp_path):
    save_start(PHCGNN(**NETWORK), tmp_path / "start")
    (tmp_path / "start").write_bytes((tmp_path / "start").read_bytes()[:-9])
    with pytest.raises(DataError, match="delete it; reports then show the end alone"):
        load_start(PHCGNN(**NETWORK), tmp_path / "start")
