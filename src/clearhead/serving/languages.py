"""Source and target languages of a model, by its name, settings or training files; detection of a text's language.

The identifier is py3langid, a naive Bayes classifier over byte n-grams (Lui and Baldwin 2012), which includes its
table; nothing is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from tempfile import gettempdir
from typing import Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from clearhead.bundle import Bundle
from clearhead.errors import DataError
from clearhead.files import os_error_as
from clearhead.formats.languages import is_variant
from clearhead.text.languages import english_name

AUTO = "auto"
"""Code of the source language that requests detection."""

MAX_CHARACTERS = 2_000
"""Number of leading characters of a text that are examined; more do not change the result."""

_PAIR = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")


def pair_in_name(name: str) -> tuple[str, str] | None:
    """Return the source and target language in a model's name, or None.

    >>> pair_in_name("de-en"), pair_in_name("opus-mt"), pair_in_name("demo")
    (('de', 'en'), None, None)
    """
    match = _PAIR.fullmatch(name)
    pair = (match[1], match[2]) if match else None
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


def possible_languages(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Return the possible languages of a text, each with its probability in per cent, the likeliest first.

    Languages that the identifier does not know are left out. If it knows none of them, or the text has no letter, all
    are returned with equal probability. Languages of equal probability are in the given order.

    Args:
        text: The text.
        languages: The candidate languages.

    Raises:
        DataError: If the table cannot be unpacked for lack of space; this is done once.
    """
    probabilities: dict[str, float] = {}
    names = _names(tuple(languages))
    for code, probability in identifier().rank(text[:MAX_CHARACTERS]):
        if (language := names[code]) is not None:
            probabilities.setdefault(language, probability)
    total = sum(probabilities.values())
    if not total or not any(map(str.isalpha, text[:MAX_CHARACTERS])):
        return [(language, 100.0 / len(languages)) for language in languages]
    ordered = sorted(probabilities, key=lambda language: (-probabilities[language], languages.index(language)))
    return [(language, 100.0 * probabilities[language] / total) for language in ordered]


@lru_cache(maxsize=100)
def _names(languages: tuple[str, ...]) -> dict[str, str | None]:
    """Return which of the languages each code of the identifier denotes."""
    return {code: matching(code, languages) for code in identifier().nb_classes}


@cache
def identifier() -> Any:
    """Return the language identifier; its table is read once.

    Raises:
        DataError: If the table cannot be unpacked for lack of space.
    """
    what = f"the table of py3langid, which tells languages apart, cannot be unpacked in {gettempdir()}"
    with os_error_as(DataError, what):
        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
