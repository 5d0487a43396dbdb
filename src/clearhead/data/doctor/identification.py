"""Identification of the language of a text by eldc, and the languages of the two sides of a corpus.

The other way to tell languages, `languages.py`, learns from the corpus itself: it needs no library, but a corpus of
some size that is mostly right, and it knows only two languages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Self

from clearhead.data.clean import normalized_key
from clearhead.data.doctor.code_points import SEEN_CHARACTERS, Texts
from clearhead.text.placeholders import words_alone

FEWEST_TEXTS = 20
"""Fewest texts of a side whose language is clear, for the language of the side to be known."""

MOST_TEXTS = 3_000
"""About how many texts of a side are looked at for it, spread evenly over the beginning of a corpus."""

MAJORITY = 0.75
"""Least share of these texts in one language for it to be the language of the side.

A language that eldc does not know looks like several others: 71 % of Galician texts like Spanish, 27 % like Portuguese.
"""

CLEAR_MEAN = 0.3
"""Least mean log odds in nats per letter of another language against that of the side, to be reported."""

CLEAR_SUM = 10.0
"""Least sum of the log odds in nats."""

_LEAST = 1e-6
_UNDETERMINED = "und"
_NUM_SCORES = 20


class Foreign(NamedTuple):
    """Evidence that a text is in another language than its side."""

    language: str
    """Code of the likeliest language."""
    mean: float
    """Log odds in nats per letter."""
    sum: float
    """Log odds in nats of all letters that count."""

    @property
    def is_clear(self) -> bool:
        """Whether there is enough evidence to report it."""
        return self.is_likely and self.sum >= CLEAR_SUM

    @property
    def is_likely(self) -> bool:
        """Whether it would be clear if there were more text of this kind."""
        return self.mean >= CLEAR_MEAN


class SideLanguages:
    """The languages of the two sides of a corpus.

    Args:
        languages: Codes of the languages of source and target.
    """

    def __init__(self, languages: tuple[str, str]) -> None:
        self.languages = languages

    @classmethod
    def learn(cls, sources: Sequence[Texts], targets: Sequence[Texts]) -> Self | str:
        """Return the languages of most texts of each side; if they are not known, the reason."""
        if _identifier() is None:
            return "eldc is not installed (pip install eldc)"
        languages = []
        for name, side in (("source", sources), ("target", targets)):
            step = 1 + sum(len(texts.texts) for texts in side) // MOST_TEXTS
            details = [_details(text) for texts in side for text in texts.texts[::step]]
            counts = Counter(detail.language for detail in details if detail.reliable)
            if counts.total() < FEWEST_TEXTS:
                return f"the {name} has too few texts whose language is clear"
            language, count = counts.most_common(1)[0]
            if count < MAJORITY * counts.total():
                shares = ", ".join(f"{tag} {100 * some / counts.total():.0f} %" for tag, some in counts.most_common(3))
                return f"no language has {100 * MAJORITY:.0f} % of the texts of the {name} (found: {shares})"
            languages.append(language)
        return cls((languages[0], languages[1]))

    def unlike(self, side: int, texts: Sequence[str]) -> list[int]:
        """Return the indices of the texts of a side for which `foreign` may find evidence: few of them."""
        usual = self.languages[side], _UNDETERMINED
        return [place for place, text in enumerate(texts) if _detected(text) not in usual]

    def foreign(self, side: int, text: str, other: str) -> Foreign | None:
        """Return the evidence that a text is not in the language of its side; None if there is none.

        Names belong to no language: words with a capital letter and words that are on both sides do not count, nor do
        code and addresses.

        Args:
            side: 0 for a source, 1 for a target.
            text: The text.
            other: The text beside it.
        """
        own = self.languages[side]
        if _detected(text) in (own, _UNDETERMINED):
            return None
        shared = {normalized_key(word) for word in words_alone(other[:SEEN_CHARACTERS]).split()}
        words = [
            word
            for word in dict.fromkeys(words_alone(text[:SEEN_CHARACTERS]).split())
            if word == word.lower() and normalized_key(word) not in shared
        ]
        details = _details(" ".join(words))
        if details.language in (own, _UNDETERMINED):
            return None
        # A score is 1 - p^(1/n), where p falls with the likelihood of the language, and n is the number of n-grams.
        scores = details.scores
        mean = math.log((1 - scores.get(own, min(scores.values()))) / max(1 - scores[details.language], _LEAST))
        return Foreign(details.language, mean, mean * sum(map(str.isalpha, "".join(words))))


@cache
def _identifier() -> Any:
    """Return the identifier, or None if eldc is not installed."""
    try:
        import eldc
    except ModuleNotFoundError:
        return None
    eldc.init()
    identifier = eldc.instance()
    identifier.set_scores(_NUM_SCORES)
    return identifier


def _detected(text: str) -> str:
    """Return the code of the likeliest language, which takes a third of the time of `_details`."""
    try:
        return _identifier().detect(text[:SEEN_CHARACTERS])
    except ValueError:
        return _details(text).language


def _details(text: str) -> Any:
    text = text[:SEEN_CHARACTERS]
    try:
        return _identifier().detect_details(text)
    except ValueError:  # half a surrogate pair, or U+0000
        return _identifier().detect_details(text.encode("utf-8", "replace").decode().replace("\0", " "))
