"""Nested settings as plain dicts, section to key to value: parse `--set`, merge, flatten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import parse_toml
from clearhead.errors import ConfigError


def parse_override(text: str) -> dict[str, Any]:
    """Parse `section.key=value` into nested values; the value is read as TOML, or else as plain text.

    Raises:
        ConfigError: If `=` or the key before it is missing, the key has more than one dot, or there is a line break.

    >>> parse_override("train.max_steps=500")
    {'train': {'max_steps': 500}}
    >>> parse_override("tokenizer.kind=bpe")
    {'tokenizer': {'kind': 'bpe'}}
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or "\n" in text or key.count(".") > 1:
        raise ConfigError(
            f"--set {text!r:.200} must look like section.key=value, for example --set train.max_steps=1000"
        )
    try:
        values: Any = parse_toml(f"value = {value}")["value"]
    except ValueError:
        values = value.strip()
    for name in reversed(key.strip().split(".")):
        values = {name: values}
    return values


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; for each key the last layer wins.

    >>> merge({"train": {"seed": 1, "patience": 3}}, {"train": {"seed": 2}})
    {'train': {'seed': 2, 'patience': 3}}
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values by their dotted names; a section without values stays as it is.

    >>> flat({"out": "runs/de", "train": {"seed": 2}, "decode": {}})
    {'out': 'runs/de', 'train.seed': 2, 'decode': {}}
    """
    values_by_name: dict[str, Any] = {}
    for section, value in values.items():
        if isinstance(value, Mapping) and value:
            values_by_name |= {f"{section}.{name}": inner for name, inner in value.items()}
        else:
            values_by_name[f"{section}"] = value
    return values_by_name


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by their dotted names as nested ones, the inverse of `flat`.

    >>> nested({"out": "runs/de", "train.seed": 2, "decode": {}})
    {'out': 'runs/de', 'train': {'seed': 2}, 'decode': {}}
    """
    result: dict[str, Any] = {}
    for name, value in values.items():
        section, dot, key = name.partition(".")
        if dot:
            result.setdefault(section, {})[key] = value
        else:
            result[name] = {**result.get(name, {})} if isinstance(value, Mapping) else value
    return result
