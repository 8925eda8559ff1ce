import pytest
import torch

from phcgnn.training.runtime import Runtime


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"devices": 0}, "`devices` must be at least 1, got 0"),
        ({"threads": 0}, "`threads` must be at least 1, got 0"),
        ({"checkpoint_seconds": -1.0}, "`checkpoint_seconds` must be at least 0"),
        ({"device": "tpu"}, "`device` must be 'auto' or 'cpu' or 'cuda', got 'tpu'"),
        ({"loggers": ("papyrus",)}, "unknown logger 'papyrus'"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Runtime(**values)


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Runtime().kind == "cpu"
    with pytest.raises(ValueError, match="torch sees no GPU; run `phcgnn doctor`"):
        Runtime(device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Runtime().kind == "cuda"
    with pytest.raises(ValueError, match="`devices` is 3, but torch sees 2 GPUs"):
        Runtime(device="cuda", devices=3)


def test_precision_and_threads_are_set():
    threads = torch.get_num_threads()
    try:
        fabric, processes = Runtime(device="cpu", threads=1).launch("tf32")
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_num_threads() == 1
        assert (processes.rank, processes.count) == (0, 1)
        assert fabric.device.type == "cpu"
        Runtime(device="cpu").launch("fp32")
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")


def test_determinism_ends_with_the_run_that_asked_for_it(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        Runtime(device="cpu", deterministic=True).launch("fp32")
        assert torch.are_deterministic_algorithms_enabled()
        Runtime(device="cpu").launch("fp32")
        assert not torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)  # by the caller: it is not ours to undo
        Runtime(device="cpu", deterministic=True).launch("fp32")
        Runtime(device="cpu").launch("fp32")
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
