"""Language detection among the languages served, without downloads.

The identifier is py3langid, a naive Bayes classifier over byte n-grams (Lui and Baldwin 2012), which includes its
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from tempfile import gettempdir
from typing import Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from clearhead.errors import DataError
from clearhead.files import os_error_as
from clearhead.serving.languages import matching

MAX_CHARACTERS = 2_000
"""Number of leading characters of a text that are examined; more do not change the result."""


def detect(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Return the possible languages of a text, each with its probability in per cent, the likeliest first.

    Languages that the identifier does not know are left out. If it knows none of them, or the text has no letter, all
    are returned with equal probability. Languages of equal probability are in the given order.

    Args:
        text: The text.
        languages: The candidate languages.

    Raises:
        DataError: If the table cannot be unpacked for lack of space; this is done once.
    """
    found: dict[str, float] = {}
    names = _names(tuple(languages))
    for code, probability in identifier().rank(text[:MAX_CHARACTERS]):
        if (language := names[code]) is not None:
            found.setdefault(language, probability)
    total = sum(found.values())
    if not total or not any(map(str.isalpha, text[:MAX_CHARACTERS])):
        return [(language, 100.0 / len(languages)) for language in languages]
    ordered = sorted(found, key=lambda language: (-found[language], languages.index(language)))
    return [(language, 100.0 * found[language] / total) for language in ordered]


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
