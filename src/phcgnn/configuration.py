"""Frozen, validated settings that files can hold: the machinery; what the settings are stands where they are used."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Self

__all__ = ["FrozenConfig", "require_known"]


class FrozenConfig:
    """Base of a frozen dataclass whose fields are typed, checked at construction, and round-trip through TOML and JSON.

    A field is an ``int``, ``float``, ``str``, ``bool``, ``Literal``, a tuple of these, or one of them or None. Files
    hold lists for tuples and ``"none"`` for None, which TOML lacks.

    >>> @dataclasses.dataclass(frozen=True, kw_only=True)
    ... class Oven(FrozenConfig):
    ...     degrees: int
    ...     minutes: tuple[int, ...] = (30,)
    ...     fan: float | None = None
    >>> Oven.from_toml(Oven(degrees=200).to_toml())
    Oven(degrees=200, minutes=(30,), fan=None)
    >>> Oven(degrees="hot")
    Traceback (most recent call last):
    TypeError: Oven: `degrees` must be an int, got 'hot'.
    >>> Oven.from_dict({"degrees": 200, "minuts": [40]})
    Traceback (most recent call last):
    ValueError: Oven: unknown field 'minuts'. Did you mean 'minutes'?
    """

    def __post_init__(self) -> None:
        for field, kind in typing.get_type_hints(type(self)).items():
            value = getattr(self, field)
            if not _fits(value, kind):
                raise TypeError(f"{type(self).__name__}: `{field}` must be {_describe(kind)}, got {value!r}.")

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """Return the names of all fields."""
        return tuple(typing.get_type_hints(cls))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from what a file holds; unknown and missing fields are refused by name."""
        if not isinstance(values, Mapping):
            raise TypeError(f"{cls.__name__}: expected a table of fields, got {values!r}.")
        hints, read = typing.get_type_hints(cls), {}
        for field, value in values.items():
            require_known(cls.__name__, "field", field, hints)
            value = tuple(value) if isinstance(value, list) else value
            read[field] = None if value == "none" and _fits(None, hints[field]) else value
        missing = [
            field.name
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
            if field.default is dataclasses.MISSING and field.name not in read
        ]
        if missing:
            raise ValueError(f"{cls.__name__}: {' and '.join(f'`{name}`' for name in missing)} must be given.")
        return cls(**read)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read JSON."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read TOML."""
        return cls.from_dict(tomllib.loads(text))

    def to_dict(self) -> dict[str, Any]:
        """Return what a file can hold."""
        return {field: _write(getattr(self, field)) for field in self.fields()}

    def to_json(self) -> str:
        """Write JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_toml(self) -> str:
        """Write TOML."""
        return "".join(f"{field} = {json.dumps(value)}\n" for field, value in self.to_dict().items())


def require_known(where: str, kind: str, name: str, known: typing.Iterable[str]) -> None:
    """Refuse a name that is not among the known ones, and say which it may have been."""
    known = tuple(known)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else f" Choose from {', '.join(known)}."
        raise ValueError(f"{where}: unknown {kind} '{name}'.{hint}")


def _write(value: Any) -> Any:
    if value is None:
        return "none"
    return list(value) if isinstance(value, tuple) else value


def _fits(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, typing.get_args(kind)[0]) for item in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _describe(kind: Any) -> str:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_describe(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        return " or ".join(repr(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"a tuple of {typing.get_args(kind)[0].__name__}s"
    return "None" if kind is type(None) else f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"
