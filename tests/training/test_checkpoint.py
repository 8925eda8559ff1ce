import pytest
import torch
from torch import nn, optim

from phcgnn.errors import DataError
from phcgnn.training.checkpoint import random_state, read_checkpoint, restore_random_state, write_checkpoint


def test_round_trip_keeps_kinds(tmp_path):
    state = {
        "a": [1, 2.5, None, True, "text", (1, 2)],
        "nested": {3: torch.ones(2), "tensor": {"dict": []}},
        "inf": float("inf"),
    }
    write_checkpoint(tmp_path / "last", state)
    found = read_checkpoint(tmp_path / "last")
    assert torch.equal(found["nested"].pop(3), state["nested"].pop(3))
    assert found == state


def test_optimizer_and_generators(tmp_path):
    layer = nn.Linear(3, 3)
    optimizer = optim.Adam(layer.parameters())
    layer(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    write_checkpoint(tmp_path / "last", {"optimizer": optimizer.state_dict(), "random": random_state()})
    expected = torch.rand(5)
    found = read_checkpoint(tmp_path / "last")
    restore_random_state(found["random"])
    assert torch.equal(torch.rand(5), expected)
    again = optim.Adam(layer.parameters())
    again.load_state_dict(found["optimizer"])
    assert torch.equal(again.state[layer.weight]["exp_avg"], optimizer.state[layer.weight]["exp_avg"])


def test_bad_files(tmp_path):
    write_checkpoint(tmp_path / "last", {"a": torch.ones(100)})
    content = (tmp_path / "last").read_bytes()
    (tmp_path / "last").write_bytes(content[:-10])
    with pytest.raises(DataError, match=r"cut short.*with --overwrite"):
        read_checkpoint(tmp_path / "last")
    with pytest.raises(TypeError, match="plain values, got object"):
        write_checkpoint(tmp_path / "other", {"a": object()})
