"""Reads another library's `config.json`, and what may stand beside, refusing what our model cannot express."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files import read_json

__all__ = ["TheirConfig", "activation_name", "optional_json"]

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Their name of an activation to ours."""


MOST_POSITIONS = 1_000_000
"""Far above what any model of theirs has; where positions are computed, no tensor says how many there are."""


def activation_name(ours: str) -> str:
    """Return their name of one of our activations; where they have two, the first."""
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)


def optional_json(path: Path) -> dict[str, Any] | None:
    """Return what a file of settings says that a directory may lack; None if it does.

    A link that leads nowhere is no lack, but what a download leaves that broke off.

    Raises:
        ModelError: If something of that name is there, and cannot be read.
    """
    return read_json(path, ModelError) if os.path.lexists(path) else None


class TheirConfig:
    """One `config.json`, read field by field; every problem is gathered before one error names them all.

    Rates of layer dropout and the like, which act in training alone, are not read.

    Args:
        values: The fields of the file.
        defaults: What their class takes for fields that a file may leave out.
        within: Where the fields stand in the file, for messages.
        problems: Gathers what is wrong; shared by the parts of one file.
        origin: What cannot be expressed then, such as the file.

    Raises:
        ConfigError: If there are no fields at all, but something else in their place.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        defaults: Mapping[str, Any],
        *,
        within: str = "",
        problems: list[str] | None = None,
        origin: object = "this model",
    ) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"{within.rstrip('.') or 'config.json'} is {values!r}, but must be an object with fields")
        self.problems = [] if problems is None else problems
        self._values = {**defaults, **values}
        self._within = within
        self._origin = origin

    def __getitem__(self, field: str) -> Any:
        """Return a field that the file must have."""
        if field not in self._values:
            self._problem(field, "is missing")
        return self._values.get(field)

    def require(self, field: str, value: object, reason: str) -> None:
        """Refuse every other value of a field; a file may leave it out."""
        if field in self._values and self._values[field] != value:
            self._problem(field, f"is {self._values[field]!r}, but must be {value!r}: {reason}")

    def one_of(self, field: str, values: Sequence[str]) -> str:
        """Return a field that must have one of some values."""
        if self[field] not in values:
            self._problem(field, f"is {self[field]!r}, but must be {' or '.join(map(repr, values))}")
            return values[0]
        return str(self[field])

    def nothing_else(self, fields: Mapping[str, Any]) -> None:
        """Refuse what our model has not, unless a field has the value that asks for nothing of it, or none."""
        for field, nothing in fields.items():
            if self._values.get(field) is not None:
                self.require(field, nothing, "our model has no other")

    def agree(self, other: TheirConfig, *fields: str) -> None:
        """Make sure that the parts of one file have the same values, as our model has one setting for both."""
        for field in fields:
            if self[field] != other[field]:
                values = f"{self[field]!r}, and {other._within}{field} {other[field]!r}"
                self._problem(field, f"is {values}; they must be equal")

    def same(self, field: str, other: str) -> Any:
        """Return the value that two fields must share, as our model has one setting for both."""
        if self[field] != self[other]:
            self._problem(field, f"({self[field]!r}) and {self._within}{other} ({self[other]!r}) must be equal")
        return self[field]

    def activation(self, field: str, name: object = None, known: Mapping[str, str] = ACTIVATIONS) -> str:
        """Return our name of an activation; `name` is theirs, where the field says more than that."""
        name = self[field] if name is None else name
        if not isinstance(name, str) or name not in known:
            self._problem(field, f"is {self[field]!r}; activations we have: {', '.join(known)}")
            return "relu"
        return known[name]

    def layers(self, field: str) -> Any:
        """Return the number of layers of a part that must be there."""
        if self[field] == 0:
            self._problem(field, "is 0, but such a model has both an encoder and a decoder")
        return self[field]

    def positions(self, field: str) -> Any:
        """Return a number of positions."""
        value = self[field]
        if isinstance(value, int) and value > MOST_POSITIONS:
            self._problem(field, f"is {value:,}, but must be at most {MOST_POSITIONS:,}")
        return value

    def token(self, field: str) -> int:
        """Return the id of a special token."""
        value = self[field]
        if isinstance(value, bool) or not isinstance(value, int):
            self._problem(field, f"is {value!r}, but must be the id of one token")
            return 0
        return value

    def token_or_free(self, field: str, *taken: int) -> int:
        """Return the id of a special token that the model itself never reads; without one, the smallest free id."""
        if self._values.get(field) is None:
            return next(token for token in range(len(taken) + 1) if token not in taken)
        return self.token(field)

    def model_config(self, **settings: Any) -> ModelConfig:
        """Return our settings.

        Raises:
            ConfigError: Naming every field that our model cannot express.
        """
        if self.problems:
            raise ConfigError(f"{self._origin} cannot be expressed here: {'; '.join(self.problems)}")
        try:
            return ModelConfig(**settings)
        except ConfigError as error:
            raise ConfigError(f"{self._origin} cannot be expressed here: {error}") from None

    def _problem(self, field: str, text: str) -> None:
        line = f"{self._within}{field} {text}"
        if line not in self.problems:
            self.problems.append(line)
