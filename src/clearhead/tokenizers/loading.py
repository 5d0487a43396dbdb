"""Loading of a `tokenizer.json`, learned or imported."""

from __future__ import annotations

import json
from pathlib import Path

from clearhead.tokenizers.learned import Tokenizer
from clearhead.tokenizers.vocabulary import Vocabulary, read_vocabulary


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a `tokenizer.json`, learned or imported.

    Raises:
        ModelError: If the file is missing or invalid, or a required library is missing.
    """
    return read_vocabulary(path, _made)


def _made(text: str) -> Vocabulary:
    if '"clearhead_vocabulary"' not in text:  # which takes a hundredth of the time of parsing it
        return Tokenizer(text)
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not (isinstance(values, dict) and "clearhead_vocabulary" in values):
        return Tokenizer(text)
    from clearhead.tokenizers.foreign import ForeignVocabulary

    return ForeignVocabulary(text)
