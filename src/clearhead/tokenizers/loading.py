"""The vocabulary of a `tokenizer.json`, whatever kind it is."""

from __future__ import annotations

import json
from pathlib import Path

from clearhead.tokenizers.foreign import ForeignVocabulary, is_foreign
from clearhead.tokenizers.learned import Tokenizer
from clearhead.tokenizers.vocabulary import Vocabulary, read_vocabulary

__all__ = ["load_vocabulary"]


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a `tokenizer.json`.

    Raises:
        ModelError: If the file is missing or is no vocabulary of ours, or a library that it needs is missing.
    """
    return read_vocabulary(path, _made)


def _made(text: str) -> Vocabulary:
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return ForeignVocabulary(text) if is_foreign(values) else Tokenizer(text)
