"""Settings laid over each other: a preset's, a file's, and those of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import parse_toml
from clearhead.errors import ConfigError

__all__ = ["merge", "parse_override"]


def parse_override(text: str) -> dict[str, Any]:
    """Turn `section.key=value` into nested values; the value is read as TOML, else as plain text.

    Raises:
        ConfigError: If there is no `=` or no key before it, or the value is nested too deep.

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
        parsed = parse_toml(f"value = {value}")["value"]
    except ValueError:
        parsed = value.strip()
    nested: Any = parsed
    for name in reversed(key.strip().split(".")):
        nested = {name: nested}
    return nested


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lay nested values over each other; the later layer wins, key by key.

    >>> merge({"train": {"seed": 1, "patience": 3}}, {"train": {"seed": 2}})
    {'train': {'seed': 2, 'patience': 3}}
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
