"""All settings of a run: a preset, a file, single overrides, in that order, each checked by name and type."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from phcgnn.configuration import require_known
from phcgnn.data.sources import DataSettings
from phcgnn.models import PHCGNNConfig
from phcgnn.training.config import TrainingConfig

__all__ = ["RunSettings", "differences", "merge", "parse_override", "presets", "read_preset", "read_settings"]

SECTIONS = ("data", "model", "training")

Settings = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Data, architecture and training of one run.

    Args:
        data: Where the data come from.
        model: Fields of :class:`~phcgnn.models.PHCGNNConfig` but for those that the data fix.
        training: How to train.
    """

    data: DataSettings
    model: dict[str, Any]
    training: TrainingConfig

    @classmethod
    def build(cls, settings: Mapping[str, Mapping[str, Any]]) -> RunSettings:
        """Check merged settings; nothing has to be read for that.

        >>> RunSettings.build({"training": {"lr": "fast"}})
        Traceback (most recent call last):
        TypeError: TrainingConfig: `lr` must be a float, got 'fast'.
        """
        for section in settings:
            require_known("settings", "section", section, SECTIONS)
        model = dict(settings.get("model", {}))
        degrees = {"degrees": (1,)} if model.get("aggregation") == "pna" and "degrees" not in model else {}
        nodes = "none" if "node_source" in model else [1]
        stand_in = {"node_features": nodes, "edge_features": [1], **degrees}
        PHCGNNConfig.from_dict({**stand_in, **model})
        return cls(
            data=DataSettings.from_dict(settings.get("data", {})),
            model=model,
            training=TrainingConfig.from_dict(settings.get("training", {})),
        )

    def to_toml(self) -> str:
        """Write everything, defaults included, as ``config.toml`` holds it."""
        model = "".join(f"{name} = {json.dumps(value)}\n" for name, value in self.model.items())
        return f"[data]\n{self.data.to_toml()}\n[model]\n{model}\n[training]\n{self.training.to_toml()}"


def differences(one: RunSettings, other: RunSettings) -> Iterator[tuple[str, Any, Any]]:
    """Yield what two runs differ in, as ``section.field`` with both values; where their data lie does not count.

    >>> one = RunSettings.build({"data": {"root": "here"}})
    >>> other = RunSettings.build({"data": {"root": "there"}, "training": {"lr": 0.5}})
    >>> list(differences(one, other))
    [('training.lr', 0.001, 0.5)]
    """
    for section in SECTIONS:
        ours, theirs = (_values(getattr(settings, section)) for settings in (one, other))
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name) and (section, name) != ("data", "root"):
                yield f"{section}.{name}", ours.get(name), theirs.get(name)


def _values(section: Any) -> dict[str, Any]:
    values = section if isinstance(section, dict) else asdict(section)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def presets() -> list[str]:
    """Return the names of all presets."""
    folder = resources.files("phcgnn.experiments") / "presets"
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml") and not name.startswith("_"))


def read_preset(name: str) -> Settings:
    """Return what a preset says, with what it inherits."""
    folder = resources.files("phcgnn.experiments") / "presets"
    if not name.startswith("_"):
        require_known("--preset", "preset", name, presets())
    return _inherit(tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8")))


def read_settings(path: str | Path) -> Settings:
    """Return what a TOML file says, with the preset that it inherits from."""
    path = Path(path)
    try:
        return _inherit(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}.") from error


def parse_override(text: str) -> Settings:
    """Read one ``section.field=value``; the value as TOML has it, quotes may be left out.

    >>> parse_override("model.n=5"), parse_override("training.schedule=step")
    ({'model': {'n': 5}}, {'training': {'schedule': 'step'}})
    """
    key, equals, value = text.partition("=")
    section, dot, field = key.strip().partition(".")
    if not equals or not dot or not field:
        raise ValueError(f"--set takes section.field=value, e.g. model.n=4, got {text!r}.")
    require_known("--set", "section", section, SECTIONS)
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return {section: {field: parsed}}


def merge(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> Settings:
    """Merge settings, the later over the earlier, field by field."""
    merged: Settings = {}
    for part in parts:
        for section, fields in part.items():
            merged[section] = {**merged.get(section, {}), **fields}
    return merged


def _inherit(settings: dict[str, Any]) -> Settings:
    parent = settings.pop("inherits", None)
    return merge([read_preset(parent), settings]) if parent is not None else settings
