"""The arguments of `Translator`, with checks of their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from clearhead.config import Sampling
from clearhead.errors import ConfigError
from clearhead.translation.memory import Lookup
from clearhead.translation.terminology import Terms

_TYPES: Mapping[str, tuple[Any, str]] = {
    "num_best": (int, "a whole number"),
    "sampling": (Sampling | None, "a clearhead.Sampling"),
    "mbr": (int | None, "a whole number of samples"),
    "diversity": (int | float, "a number"),
    "terms": (Terms | None, "a clearhead.Terms"),
    "memory": (Callable | None, "a function, such as the method match of a translation memory"),
    "scores": (bool, "True or False"),
    "alignments": (bool, "True or False"),
    "one_line": (bool, "True or False"),
    "quality": (bool, "True or False"),
    "raw": (bool, "True or False"),
    "plain": (bool, "True or False"),
    "name": (str, "text"),
    "first": (int, "a whole number"),
    "on_progress": (Callable | None, "a function"),
    "words": (Callable, "a function"),
}
"""Type of each argument that is neither texts nor a setting, and its name in messages."""


def require_types(**given: object) -> None:
    """Check the types of arguments.

    Raises:
        ConfigError: Naming the first argument of a wrong type.
    """
    for name, value in given.items():
        kind, words = _TYPES[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"{name} must be {words}, not {type(value).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateOptions:
    """The arguments of `Translator.translate` that are neither texts nor settings, which explains them.

    Raises:
        ConfigError: If one has the wrong type.
    """

    num_best: int = 1
    sampling: Sampling | None = None
    mbr: int | None = None
    diversity: float = 0.0
    terms: Terms | None = None
    memory: Lookup | None = None
    scores: bool = True
    alignments: bool = False
    quality: bool = False
    one_line: bool = False
    raw: bool = False
    plain: bool = False
    name: str = ""
    first: int = 1
    on_progress: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        require_types(**{field.name: getattr(self, field.name) for field in fields(self)})
