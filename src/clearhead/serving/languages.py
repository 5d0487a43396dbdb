"""Source and target languages of a model, by its name, settings or training files; matching of language codes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clearhead.bundle import Bundle
from clearhead.formats.languages import is_variant
from clearhead.text.languages import english_name

AUTO = "auto"
"""Code of the source language that requests detection."""

_PAIR = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")


def pair_in_name(name: str) -> tuple[str, str] | None:
    """Return the source and target language in a model's name, or None.

    >>> pair_in_name("de-en"), pair_in_name("opus-mt"), pair_in_name("demo")
    (('de', 'en'), None, None)
    """
    found = _PAIR.fullmatch(name)
    pair = (found[1], found[2]) if found else None
    return pair if pair is not None and all(map(english_name, pair)) else None


def languages_of(bundle: Bundle, name: str) -> tuple[list[str], list[str]]:
    """Return the source and target languages of a model, as far as they can be determined.

    The name comes first, such as `de-en`, then what the model itself says (`Bundle.languages`).

    Args:
        bundle: The model.
        name: Name of the model.
    """
    if (pair := pair_in_name(name)) is not None and not bundle.tokenizer.language_tags:
        return [pair[0]], [pair[1]]
    return bundle.languages


def matching(code: str, known: Iterable[str]) -> str | None:
    """Return the known language that a code denotes: the exact language, or else its first variant."""
    names = list(known)
    exact = [name for name in names if is_variant(name, code) and is_variant(code, name)]
    return next(iter([*exact, *(name for name in names if is_variant(name, code))]), None)
