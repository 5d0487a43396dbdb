"""Readers of text and JSON files that may be larger than settings, such as vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearhead.errors import ModelError
from clearhead.files import parse_json, read_text
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
