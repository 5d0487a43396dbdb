"""Type checks of the arguments of `Translator`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.config import Sampling
from clearhead.errors import ConfigError
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
