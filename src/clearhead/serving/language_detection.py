"""Which language a text is in, among those that are served; nothing is downloaded.

The identifier is py3langid, a naive Bayes classifier over byte n-grams (Lui and Baldwin 2012), whose table comes with
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from tempfile import gettempdir
from typing import Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from clearhead.errors import DataError
from clearhead.serving.languages import matching

__all__ = ["detect", "identifier"]

MOST_CHARACTERS = 2_000
"""Of a text, its first, that are looked at; more change nothing."""


def detect(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Return the languages that a text may be in, each with its probability in per cent, the likeliest first.

    Those that the identifier does not know come never, unless it knows none of them: then all are as likely, as they
    are for a text without a letter.

    Args:
        text: The text.
        languages: Those that it can be in.

    Raises:
        DataError: If there is no room to unpack the table, which is done once.
    """
    found: dict[str, float] = {}
    for code, probability in identifier().rank(text[:MOST_CHARACTERS]):
        if (language := matching(code, languages)) is not None:
            found.setdefault(language, probability)
    total = sum(found.values())
    if not total or not any(map(str.isalpha, text[:MOST_CHARACTERS])):
        return [(language, 100.0 / len(languages)) for language in languages]
    return [(language, 100.0 * probability / total) for language, probability in found.items()]


@cache
def identifier() -> Any:
    """Return what tells languages apart; its table is read once.

    Raises:
        DataError: If there is no room to unpack it.
    """
    try:
        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    except OSError as error:
        raise DataError(
            f"the table of py3langid, which tells languages apart, cannot be unpacked in {gettempdir()}: "
            f"{error.strerror or error}"
        ) from None
