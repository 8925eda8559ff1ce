"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("phcgnn", deadline=None, derandomize=True)
hypothesis.settings.load_profile("phcgnn")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    """Every test starts from one seed and leaves the global settings of torch as they were."""
    dtype = torch.get_default_dtype()
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture(params=[False, True], ids=["any", "uncompared"])
def uncompared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With and without the comparison of contents that kept tensors have on the CPU: without it, as on a GPU."""
    if request.param:
        monkeypatch.setattr("phcgnn.nn.cache._compares_content", lambda source: False)
    return request.param


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def tol(dtype: torch.dtype) -> dict[str, float]:
    """The one table of tolerances."""
    return {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-10, "atol": 1e-12}}[dtype]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The rebuilt benchmark data beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("../shared/data is not here: the test against real data was not run")
    return SHARED_DATA
