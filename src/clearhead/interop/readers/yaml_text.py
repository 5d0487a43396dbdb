"""Reader of other libraries' YAML: plain values only; no objects are created and no code is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearhead.errors import ModelError
from clearhead.interop.readers.vocabulary_text import file_text


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
        raise ModelError(
            f"{origin} is read by PyYAML, which is not installed: pip install 'clearhead[interop]'"
        ) from None
    kind = "BaseLoader" if as_texts else "SafeLoader"
    try:
        values = yaml.load(text, Loader=getattr(yaml, f"C{kind}", getattr(yaml, kind)))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{origin} is damaged: {said:.200}") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ModelError(f"{origin} is damaged: it must hold settings by name")
    return values
