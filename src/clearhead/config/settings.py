"""Base class of all sections: frozen settings, bounds of numbers, and error messages for invalid values."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from clearhead.config.words import SameAs, docstrings
from clearhead.errors import ConfigError, nearest_name

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]

# No setting is without bounds: a file that was damaged or made up must not ask for more than a machine can have. Each
# bound is far above what anybody uses.
Tokens = Annotated[PositiveInt, Field(le=100_000_000)]
Items = Annotated[PositiveInt, Field(le=100_000_000)]
Times = Annotated[int | float, Field(ge=0.001, le=1_000), AfterValidator(lambda n: int(n) if n == int(n) else n)]
Pieces = Annotated[PositiveInt, Field(le=10_000_000)]
Rate = Annotated[PositiveFloat, Field(le=1e9)]
Temperature = Annotated[float, Field(ge=1.0, le=100.0)]
SmallNumber = Annotated[PositiveFloat, Field(le=1.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


def _size(value: object) -> object:
    """Refuse what is no number with a unit of bytes; pydantic would read the start of it."""
    if type(value) is int or (isinstance(value, str) and re.fullmatch(r"\d*\.?\d+ ?[kmgt]i?b", value, re.IGNORECASE)):
        return value
    raise PydanticCustomError("size", "must be a number and a unit, such as 6GB")


Bytes = Annotated[ByteSize, Field(ge=10**7, le=10**15), BeforeValidator(_size)]
"""A number of bytes, given as text such as `6GB` (6 * 10^9) or `6GiB` (6 * 2^30)."""


_is_within: ContextVar[bool] = ContextVar("is_within", default=False)


class Settings(BaseModel):
    """A frozen section; unknown keys and values of the wrong type are rejected.

    Raises:
        ConfigError: Naming every unknown key (with the nearest known one) and every impossible value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        if _is_within.get():
            super().__init__(**values)  # the section around this one gathers the problems of all
            return
        token = _is_within.set(True)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("; ".join(_explain(type(self), problem) for problem in error.errors())) from None
        finally:
            _is_within.reset(token)

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse True and False, which Python takes for 1 and 0."""
        if isinstance(value, bool) and info.field_name is not None:
            kind = cls.model_fields[info.field_name].annotation
            # Of `Annotated[int, ...] | None` the first part is an int with bounds.
            if {getattr(part, "__origin__", part) for part in (kind, *get_args(kind))} & {int, float}:
                raise PydanticCustomError("truth", "Input should be a number")
        return value

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Return what each setting means."""
        own = docstrings(Path(sys.modules[cls.__module__].__file__ or ""))[cls.__name__]
        same = {
            name: str(note)
            for name, field in cls.model_fields.items()
            for note in field.metadata
            if isinstance(note, SameAs)
        }
        return {**same, **{name: inspect.cleandoc(text) for name, text in own.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, origin: str = "configuration") -> Self:
        """Check nested plain values against every rule at once.

        Args:
            values: Section name to key to value, as TOML gives them.
            origin: Where the values came from, for the error message.

        Raises:
            ConfigError: Naming every unknown key (with the nearest known one) and every impossible value.
        """
        tables = [values, *(values.values() if isinstance(values, Mapping) else ())]
        names = [name for table in tables if isinstance(table, Mapping) for name in table]
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{origin}: settings must be a table from section to key to value, not {_shown(values)}")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from None


def _explain(section: type[BaseModel], problem: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    where = ".".join(path)
    match problem["type"]:
        case "extra_forbidden":
            for name in path[:-1]:
                annotation = section.model_fields[name].annotation
                assert isinstance(annotation, type)
                section = annotation
            before = where.removesuffix(path[-1])
            return f"unknown setting '{where}'{nearest_name(path[-1], section.model_fields, section=before)}"
        case "value_error":
            return problem["msg"].removeprefix("Value error, ")
        case "missing":
            return f"{where} is missing"
        case "tuple_type":
            return f"{where} = {_shown(problem['input'])}: must be a list, such as [{_shown(problem['input'])}]"
        case _:
            return f"{where} = {_shown(problem['input'])}: {problem['msg']}"


def _shown(value: object) -> str:
    """Return a value as a message shows it: on one line, and not longer than that."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or a number of thousands of digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}..."
