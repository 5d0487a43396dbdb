"""The arguments of `Translator`, with checks of their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from clearhead.config import Sampling
from clearhead.errors import ConfigError
from clearhead.translation.memory import Lookup, Retrieve
from clearhead.translation.terminology import Terms


def _type(kind: Any, words: str) -> dict[str, tuple[Any, str]]:
    """Return what a field says of its type: the type, and the words for it in messages."""
    return {"type": (kind, words)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateOptions:
    """The arguments of `Translator.translate` that are neither texts nor settings, which explains them.

    Raises:
        ConfigError: If one has the wrong type.
    """

    num_best: int = field(default=1, metadata=_type(int, "a whole number"))
    sampling: Sampling | None = field(default=None, metadata=_type(Sampling | None, "a clearhead.Sampling"))
    mbr: int | None = field(default=None, metadata=_type(int | None, "a whole number of samples"))
    diversity: float = field(default=0.0, metadata=_type(int | float, "a number"))
    terms: Terms | None = field(default=None, metadata=_type(Terms | None, "a clearhead.Terms"))
    memory: Lookup | None = field(
        default=None, metadata=_type(Callable | None, "a function, such as the method match of a translation memory")
    )
    neighbours: Retrieve | None = field(
        default=None, metadata=_type(Callable | None, "a function, such as the method nearest of a translation memory")
    )
    reuse_from: float | None = field(default=None, metadata=_type(int | float | None, "a number"))
    scores: bool = field(default=True, metadata=_type(bool, "True or False"))
    alignments: bool = field(default=False, metadata=_type(bool, "True or False"))
    quality: bool = field(default=False, metadata=_type(bool, "True or False"))
    one_line: bool = field(default=False, metadata=_type(bool, "True or False"))
    raw: bool = field(default=False, metadata=_type(bool, "True or False"))
    plain: bool = field(default=False, metadata=_type(bool, "True or False"))
    name: str = field(default="", metadata=_type(str, "text"))
    first: int = field(default=1, metadata=_type(int, "a whole number"))
    on_progress: Callable[[int], None] | None = field(default=None, metadata=_type(Callable | None, "a function"))

    def __post_init__(self) -> None:
        require_types(**{option.name: getattr(self, option.name) for option in fields(self)})


_TYPES = {
    **{option.name: option.metadata["type"] for option in fields(TranslateOptions)},
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
