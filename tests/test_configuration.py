from dataclasses import dataclass
from typing import Literal

import pytest

from phcgnn.configuration import FrozenConfig, require_known


@dataclass(frozen=True, kw_only=True)
class Example(FrozenConfig):
    count: int
    rate: float = 0.5
    name: str | None = None
    kind: Literal["a", "b"] = "a"
    widths: tuple[int, ...] = (1, 2)
    flag: bool = False


@pytest.mark.parametrize(
    "config",
    [Example(count=1), Example(count=-3, rate=2, name='with "quotes" and ü', kind="b", widths=(), flag=True)],
    ids=["defaults", "all"],
)
def test_round_trips(config):
    assert Example.from_toml(config.to_toml()) == config
    assert Example.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("count", 1.5, "`count` must be an int, got 1.5"),
        ("count", True, "`count` must be an int, got True"),
        ("rate", "fast", "`rate` must be a float"),
        ("name", 3, "`name` must be a str or None"),
        ("kind", "c", "`kind` must be 'a' or 'b'"),
        ("widths", [1], "`widths` must be a tuple of ints"),
        ("flag", 1, "`flag` must be a bool"),
    ],
)
def test_types_are_checked(field, value, message):
    with pytest.raises(TypeError, match=message):
        Example(**{"count": 1, field: value})


def test_unknown_and_missing_fields():
    with pytest.raises(ValueError, match=r"unknown field 'cuont'\. Did you mean 'count'"):
        Example.from_dict({"cuont": 1})
    with pytest.raises(ValueError, match="`count` must be given"):
        Example.from_dict({})
    with pytest.raises(ValueError, match=r"unknown thing 'zzz'\. Choose from x, y"):
        require_known("here", "thing", "zzz", ["x", "y"])
