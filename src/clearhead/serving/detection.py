"""Which language a text is in, among those that are served; nothing is downloaded.

The identifier is py3langid, a naive Bayes classifier over byte n-grams (Lui and Baldwin 2012), whose table comes with
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from clearhead.serving.languages import matching

__all__ = ["detect"]

MOST_CHARACTERS = 2_000
"""Of a text, its first, that are looked at; more change nothing."""


def detect(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Return the languages that a text may be in, each with its probability in per cent, the likeliest first.

    Those that the identifier does not know come never, unless it knows none of them: then all are as likely, as they
    are for a text without a letter.

    Args:
        text: The text.
        languages: Those that it can be in.
    """
    found: dict[str, float] = {}
    for code, probability in _identifier().rank(text[:MOST_CHARACTERS]):
        if (language := matching(code, languages)) is not None:
            found.setdefault(language, probability)
    total = sum(found.values())
    if not total or not any(map(str.isalpha, text[:MOST_CHARACTERS])):
        return [(language, 100.0 / len(languages)) for language in languages]
    return [(language, 100.0 * probability / total) for language, probability in found.items()]


@cache
def _identifier() -> Any:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
