"""Readers of another library's text files, and of its settings, which reject what our model cannot express.

Of YAML only plain values are read: no objects are created and no code is run. Values that may contain the same part
many times, YAML with aliases and pickles, are bounded.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files import parse_json, read_json, read_text
from clearhead.runtime.installation import pip_install
from clearhead.tokenizers.vocabulary import MOST_BYTES


def file_text(path: Path) -> str:
    """Return the text of a vocabulary file.

    Raises:
        ModelError: If the file cannot be read, is larger than `MOST_BYTES`, or is not UTF-8.
    """
    try:
        return read_text(path, most_bytes=MOST_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}") from None


def file_json(path: Path) -> Any:
    """Return the value in a JSON file of a vocabulary.

    Raises:
        ModelError: If the file cannot be read, is larger than `MOST_BYTES`, or is not JSON.
    """
    try:
        return parse_json(file_text(path))
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}") from None


MOST_DEPTH = 64
"""Maximum nesting depth; the settings in checkpoints of toolkits have about 10 levels."""
_MOST_REPEATED = 16
"""Maximum ratio of the size of a value written out to the size of its file."""
_ALWAYS_ALLOWED = 1_000_000
"""Size of a value written out that is accepted from a file of any size."""


def require_bounded(root: Any, parts: Callable[[Any], Iterable[Any]], *, stored: int, origin: object) -> None:
    """Check the depth of a value and its size when every part is written out wherever it occurs.

    Such a value may be exponentially larger than its file, and then even its `repr` fills the memory. The check itself
    visits each part once.

    Args:
        root: The value.
        parts: Function that returns the values directly inside a value.
        stored: Size of the file in bytes.
        origin: Name of the file, for the message.

    Raises:
        ModelError: If the value is too deep or too large.
    """
    sizes: dict[int, tuple[float, int]] = {}

    def measured(value: Any, depth: int) -> tuple[float, int]:
        """Return the size of a value, and the depth inside it."""
        if isinstance(value, str | bytes):
            return 1 + len(value), 0
        if (known := sizes.get(id(value))) is not None:
            return known
        if depth == MOST_DEPTH:
            return math.inf, 0
        sizes[id(value)] = math.inf, 0  # the result for a value inside itself
        inside = [measured(part, depth + 1) for part in parts(value)]
        sizes[id(value)] = 1 + sum(size for size, _ in inside), 1 + max((deep for _, deep in inside), default=0)
        return sizes[id(value)]

    size, depth = measured(root, 0)
    if size > _MOST_REPEATED * stored + _ALWAYS_ALLOWED or depth > MOST_DEPTH:
        raise ModelError(
            f"{origin} is damaged: its values are nested deeper than {MOST_DEPTH} levels, or repeat parts until they "
            f"are more than {_MOST_REPEATED} times as large as the file"
        )


ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Activation names of Hugging Face transformers to ours."""


MOST_POSITIONS = 1_000_000
"""Largest accepted number of positions, far above that of any published model.

Computed positions have no tensor that would limit the number.
"""


def activation_name(ours: str) -> str:
    """Return the transformers name of one of our activations; if there are two names, the first."""
    for theirs, name in ACTIVATIONS.items():
        if name == ours:
            return theirs
    raise ConfigError(f"model.activation is {ours!r}, which has no name in transformers")


def optional_json(path: Path) -> dict[str, Any] | None:
    """Read an optional settings file; None if it does not exist.

    A broken link counts as an existing file: an interrupted download leaves one.

    Raises:
        ModelError: If the file exists and cannot be read.
    """
    return read_json(path, ModelError) if os.path.lexists(path) else None


_shown = reprlib.repr
"""A value in a message, shortened: theirs may be a whole file."""


class TheirConfig:
    """One `config.json`, read field by field; all problems are collected and reported in one error.

    Settings of training alone, such as layer dropout, are not read.

    Args:
        values: The fields of the file.
        defaults: Their default values for fields that a file may omit.
        within: Prefix of the field names in messages, such as the name of a section with a dot.
        problems: List that collects the problems; the parts of one file share it.
        origin: Subject of the error message, such as the file.

    Raises:
        ConfigError: If `values` is not an object with fields.
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
            raise ConfigError(
                f"{within.rstrip('.') or 'config.json'} is {_shown(values)}, but must be an object with fields"
            )
        self.problems = [] if problems is None else problems
        self._values = {**defaults, **values}
        self._within = within
        self._origin = origin

    def __getitem__(self, field: str) -> Any:
        """Return the value of a field; record a problem if it is missing."""
        if field not in self._values:
            self._problem(field, "is missing")
        return self._values.get(field)

    def require(self, field: str, value: object, reason: str) -> None:
        """Record a problem if a field has another value; a missing field is accepted."""
        if field in self._values and self._values[field] != value:
            self._problem(field, f"is {_shown(self._values[field])}, but must be {value!r}: {reason}")

    def one_of(self, field: str, values: Sequence[str]) -> str:
        """Return the value of a field, which must be one of the given values."""
        if self[field] not in values:
            self._problem(field, f"is {_shown(self[field])}, but must be {' or '.join(map(repr, values))}")
            return values[0]
        return str(self[field])

    def nothing_else(self, fields: Mapping[str, Any]) -> None:
        """Record a problem for every field that enables a feature our model lacks.

        `fields` gives the value that disables each feature; missing fields and None are accepted.
        """
        for field, nothing in fields.items():
            if self._values.get(field) is not None:
                self.require(field, nothing, "our model has no other")

    def agree(self, other: TheirConfig, *fields: str) -> None:
        """Record a problem for every field that differs between two parts of a file.

        Our model has one setting for both parts.
        """
        for field in fields:
            if self[field] != other[field]:
                values = f"{_shown(self[field])}, and {other._within}{field} {_shown(other[field])}"
                self._problem(field, f"is {values}; they must be equal")

    def same(self, field: str, other: str) -> Any:
        """Return the value of two fields, which must be equal, as our model has one setting for both."""
        if self[field] != self[other]:
            self._problem(
                field, f"({_shown(self[field])}) and {self._within}{other} ({_shown(self[other])}) must be equal"
            )
        return self[field]

    def activation(self, field: str, name: object = None, known: Mapping[str, str] = ACTIVATIONS) -> str:
        """Return our name of an activation.

        Args:
            field: The field.
            name: Their name of the activation, if the field contains more than the name.
            known: Their names of activations to ours.
        """
        name = self[field] if name is None else name
        if not isinstance(name, str) or name not in known:
            self._problem(field, f"is {_shown(self[field])}; activations we have: {', '.join(known)}")
            return "relu"
        return known[name]

    def layers(self, field: str) -> Any:
        """Return the number of layers of an encoder or decoder, which must not be 0."""
        if self[field] == 0:
            self._problem(field, "is 0, but such a model has both an encoder and a decoder")
        return self[field]

    def positions(self, field: str) -> Any:
        """Return the number of positions, which must be at most `MOST_POSITIONS`."""
        value = self[field]
        if isinstance(value, int) and value > MOST_POSITIONS:
            self._problem(field, f"is {value:,}, but must be at most {MOST_POSITIONS:,}")
        return value

    def token(self, field: str) -> int:
        """Return the id of a special token."""
        value = self[field]
        if isinstance(value, bool) or not isinstance(value, int):
            self._problem(field, f"is {_shown(value)}, but must be the id of one token")
            return 0
        return value

    def token_or_free(self, field: str, *taken: int) -> int:
        """Return the id of a special token that the model never reads.

        If it is missing, return the smallest id not in `taken`.
        """
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


_MOST_DIGITS = 100
"""Maximum length of a whole number; 64 bits in base 2 take 66 characters."""


def read_yaml(path: Path, *, as_texts: bool = False) -> dict[str, Any]:
    """Read a YAML file of options; see `parse_yaml`.

    Raises:
        ModelError: If the file cannot be read or is damaged.
    """
    return parse_yaml(file_text(path), str(path), as_texts=as_texts)


def parse_yaml(text: str, origin: str, *, as_texts: bool = False) -> dict[str, Any]:
    """Parse YAML with names and values.

    Args:
        text: The YAML text.
        origin: Name of the source, for messages.
        as_texts: Whether to keep all names and values as strings: `null` and `1` are then strings.

    Raises:
        ModelError: If the text is not such YAML, or PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise ModelError(f"{origin} is read by PyYAML, which is not installed: {pip_install('interop')}") from None
    kind = "BaseLoader" if as_texts else "SafeLoader"
    try:
        made = getattr(yaml, f"C{kind}", getattr(yaml, kind))
        # Events come without recursion; libyaml's nodes are made by recursive functions in C, which would crash.
        depth = 0
        for event in yaml.parse(text, Loader=made):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise ValueError(f"its values are nested deeper than {MOST_DEPTH} levels")
        loader = made(text)
        if (node := loader.get_single_node()) is not None:
            require_bounded(node, _parts, stored=len(text), origin=origin)
        values = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{origin} is damaged: {said:.200}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ModelError(f"{origin} is damaged: it must hold settings by name")
    return values


def _parts(node: Any) -> Iterable[Any]:
    """Return the nodes and text inside a node of YAML.

    Raises:
        ValueError: If it is a whole number that is too long to be written as text.
    """
    if isinstance(node.value, str):
        if node.tag == "tag:yaml.org,2002:int" and len(node.value) > _MOST_DIGITS:
            raise ValueError(f"a whole number has more than {_MOST_DIGITS} digits")
        return (node.value,)
    return (part for item in node.value for part in (item if isinstance(item, tuple) else (item,)))
