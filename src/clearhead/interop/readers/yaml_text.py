"""Reader of other libraries' YAML: plain values only; no objects are created and no code is run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clearhead.errors import ModelError
from clearhead.interop.readers.bounded_values import MOST_DEPTH, require_bounded
from clearhead.interop.readers.vocabulary_text import file_text
from clearhead.runtime.installation import pip_install

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
