"""Word spans, and word alignment links: from attention between tokens, joined over sentences, in Pharaoh format.

A link is a pair of word numbers, source and target, both counted from 0. In files a link is `3-5`, and a line has the
links of one sentence pair ("Pharaoh format").

Shapes: T target tokens, S source tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from clearhead.text.languages import CHINESE_AND_JAPANESE_MARKS, LETTERS_WITHOUT_SPACES

if TYPE_CHECKING:
    from jaxtyping import Float

Span = tuple[int, int]
"""Start and end of a stretch of text, in characters."""

Link = tuple[int, int]
"""A word of the source and a word of the target, counted from 0."""

UNSPACED = LETTERS_WITHOUT_SPACES + CHINESE_AND_JAPANESE_MARKS
"""Ranges of the characters that are words of their own, for a set in a regular expression."""
UNLOOKED = 0.1
"""Added to the total of each source word, so that a word that no target word attends to is not linked. On the 40
pairs of Multi30k linked by hand, in tests/unit/evaluation, values from 0.03 to 0.5 perform alike."""
NEARLY = 1 - 1e-6
"""Share of the best weight that is as good: characters of one token share its weight equally."""

# Compiled when they are first needed, which takes milliseconds; `re` keeps them.
_WORD = rf"[{UNSPACED}]|[^\s{UNSPACED}]+"
_PART = rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+|[^\w\s]"


def words_of(text: str) -> list[Span]:
    """Return the spans of words: separated by white space, or single characters in scripts without spaces.

    >>> words_of("Ein Hund."), words_of("犬 です")
    ([(0, 3), (4, 9)], [(0, 1), (2, 3), (3, 4)])
    """
    return [match.span() for match in re.finditer(_WORD, text)]


def spaced_words(text: str) -> list[Span]:
    """Return the spans of words separated by white space, in every script, as in manual links and other aligners.

    >>> spaced_words("犬 です")
    [(0, 1), (2, 4)]
    """
    return [match.span() for match in re.finditer(r"\S+", text)]


def parts_of_words(text: str) -> list[Span]:
    """Return the spans of the runs of letters and digits of a text, and of each punctuation mark or symbol.

    >>> parts_of_words("Ein Hund.")
    [(0, 3), (4, 8), (8, 9)]
    """
    return [match.span() for match in re.finditer(_PART, text)]


def link_words(
    weights: Float[np.ndarray, "T S"],
    source_tokens: Sequence[Span],
    target_tokens: Sequence[Span],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> list[Link]:
    """Return the word links implied by the attention of target tokens to source tokens, in ascending order.

    The attention between two words is the sum over their tokens. Each target word's attention is normalized to sum to
    1. Then the attention that each source word receives is divided by its total plus a tenth. So a source word that
    every target word attends to, such as the full stop, counts little. Each target word is linked to the source word of
    which it has the largest share. Tokens that are not text, such as the end token of the source, are ignored.

    Args:
        weights: How much each target token attends to each source token; not negative.
        source_tokens: Span of each source token in its text; empty for a token that is not text.
        target_tokens: Span of each target token in its text, likewise.
        source_words: Span of each source word, in order, without overlaps.
        target_words: Span of each target word, likewise.
    """
    # Of a source that was cut, the words that no token reaches have no links, and may be any number.
    source_words = source_words[: _num_reached(source_words, source_tokens)]
    looks = _shares(target_words, target_tokens) @ weights @ _shares(source_words, source_tokens).T
    sums = looks.sum(axis=1, keepdims=True)
    looks = np.divide(looks, sums, out=np.zeros_like(looks), where=sums > 0)
    looks /= looks.sum(axis=0, keepdims=True) + UNLOOKED
    links = [
        (int(source), target)
        for target, row in enumerate(looks)
        if row.any()
        for source in np.flatnonzero(row >= row.max() * NEARLY)
    ]
    return sorted(links)


def link_tokens(
    links: Sequence[Link],
    source_tokens: Sequence[Span],
    target_tokens: Sequence[Span],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> list[Link]:
    """Return the token links implied by word links: every token of one word with every token of the other.

    Args:
        links: Word links.
        source_tokens: Span of each source token in its text; empty for a token that is not text.
        target_tokens: Span of each target token in its text, likewise.
        source_words: Span of each source word, in order, without overlaps.
        target_words: Span of each target word, likewise.

    Returns:
        Pairs of a source and a target token, each once, in ascending order.
    """
    of_source, of_target = (
        [np.flatnonzero(word).tolist() for word in _shares(words, tokens)]
        for words, tokens in ((source_words, source_tokens), (target_words, target_tokens))
    )
    pairs = {(left, right) for source, target in links for left in of_source[source] for right in of_target[target]}
    return sorted(pairs)


def joined_links(
    links: Sequence[Sequence[Link]], sources: Sequence[str], targets: Sequence[str], source: str, target: str
) -> list[Link]:
    """Return the links of a line from those of its sentences.

    Args:
        links: Links of each sentence.
        sources: The source sentences.
        targets: Their translations.
        source: The source line: its sentences, apart from white space.
        target: The translated line, likewise.
    """
    source_words = _words_in(source, sources)
    target_words = _words_in(target, targets)
    joined = {
        (left[left_word], right[right_word])
        for left, right, some in zip(source_words, target_words, links, strict=True)
        for left_word, right_word in some
    }
    return sorted(joined)


def pharaoh(links: Sequence[Link]) -> str:
    """Return links as a line in Pharaoh format.

    >>> pharaoh([(0, 0), (2, 1)])
    '0-0 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in links)


def _words_in(whole: str, parts: Sequence[str]) -> list[list[int]]:
    """Return for each word of each part the number of the word of the whole text that contains its beginning."""
    of_characters = [number for number, (start, end) in enumerate(words_of(whole)) for _ in range(start, end)]
    words, at = [], 0
    for part in parts:
        sizes = [end - start for start, end in words_of(part)]
        starts = [at, *(at + size for size in accumulate(sizes))]
        words.append([of_characters[start] for start in starts[:-1]])
        at = starts[-1]
    return words


def _num_reached(words: Sequence[Span], tokens: Sequence[Span]) -> int:
    """Return the number of the words that begin before the end of the last token."""
    return bisect_left(words, max((end for start, end in tokens if end > start), default=0), key=lambda word: word[0])


def _shares(words: Sequence[Span], tokens: Sequence[Span]) -> Float[np.ndarray, "W N"]:
    """Return the share of each token's characters that lies within each word."""
    shares = np.zeros((len(words), len(tokens)))
    first = 0
    for number, (start, end) in enumerate(tokens):
        while first < len(words) and words[first][1] <= start:
            first += 1
        for word in range(first, len(words)):
            common = min(end, words[word][1]) - max(start, words[word][0])
            if common <= 0:
                break
            shares[word, number] = common / (end - start)
    return shares
