"""Data augmentation: altered copies of training pairs, since user input may not look like the training text.

Only sentences are altered, that is, pairs of which both sides end with an end mark: for dates, words or code an
alteration has no clear meaning. The shares are so small that clean text is translated as well as without augmentation;
docs/recipes.md has the figures.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from clearhead.formats import SentencePair
from clearhead.text.sentence_splitting import join_sentences
from clearhead.text.word_links import joined_links, words_of

Alteration = Callable[[SentencePair, random.Random], SentencePair | None]
"""Returns an altered pair; None if the alteration does not apply to the pair."""

_END = ".!?…。！？｡؟۔।॥։።។။"
_CLOSING = "\"'”’»«›‹“‘„」』）)]"
_IS_SENTENCE = re.compile(rf"[{re.escape(_END)}][{re.escape(_CLOSING)}]*$")
_END_MARKS = re.compile(rf"[{re.escape(_END)}]+$")
_NUMBER = re.compile(r"(?<!\w)[0-9](?:[0-9.,:/-]*[0-9])?(?!\w)")
_MOST_JOINED = 6
_MOST_DIGITS = 9


def altered(pairs: Iterable[SentencePair], *, seed: int, max_characters: int) -> Iterator[tuple[str, SentencePair]]:
    """Yield altered copies of some of the pairs, each with the name of its alteration, one of `KINDS`.

    Args:
        pairs: Cleaned training pairs, in the order of their files.
        seed: Determines which pairs are altered, and how.
        max_characters: Longest joined text on either side, in characters.
    """
    choose = random.Random(seed)
    joined: list[SentencePair] = []
    wanted = 0
    for pair in pairs:
        if not (_IS_SENTENCE.search(pair.text) and _IS_SENTENCE.search(pair.target)):
            continue
        if joined and pair.language != joined[0].language:
            joined = []
        if not joined and choose.random() < _SHARE_JOINED:
            wanted = choose.randint(2, _MOST_JOINED)
            joined = [pair]
        elif joined:
            joined.append(pair)
            if len(joined) == wanted:
                together = _together(joined)
                joined = []
                if max(len(together.text), len(together.target)) <= max_characters:
                    yield "joined", together
        for kind, (share, alter) in _ALTERATIONS.items():
            if choose.random() < share and (copy := alter(pair, choose)) is not None:
                yield kind, copy


def _together(pairs: list[SentencePair]) -> SentencePair:
    sources, targets = [pair.text for pair in pairs], [pair.target for pair in pairs]
    joined = _with_text(pairs[0], _paragraph(sources), _paragraph(targets))
    if not any(pair.links for pair in pairs):
        return joined
    links = joined_links([pair.links or () for pair in pairs], sources, targets, joined.text, joined.target)
    return replace(joined, links=tuple(links))


def _paragraph(sentences: list[str]) -> str:
    """Join sentences with the separator of their script."""
    return join_sentences([sentence.strip() for sentence in sentences], [""] * (len(sentences) - 1))


def _without_end(pair: SentencePair, choose: random.Random) -> SentencePair | None:
    if not (_END_MARKS.search(pair.text) and _END_MARKS.search(pair.target)):
        return None
    # French has a space before `?` and `!`, which is removed with them.
    text, target = _END_MARKS.sub("", pair.text).rstrip(), _END_MARKS.sub("", pair.target).rstrip()
    if not (text and target):
        return None
    altered = _with_text(pair, text, target)
    if not pair.links:
        return altered
    words = len(words_of(text)), len(words_of(target))  # a mark between spaces counted as a word
    return replace(altered, links=tuple(link for link in pair.links if link[0] < words[0] and link[1] < words[1]))


def _other_number(pair: SentencePair, choose: random.Random) -> SentencePair | None:
    """Replace the number that both sides share by another one of as many digits.

    The words around it may depend on it: `1 dog`, and in Slavic languages a different plural for 2 to 4 than for 5 to
    20. A number whose last digits take the plural of 5 to 20 is replaced by another such number; in others all digits
    but the last two are changed.
    """
    numbers = _NUMBER.findall(pair.text)
    if len(numbers) != 1 or _NUMBER.findall(pair.target) != numbers or not numbers[0].isdecimal():
        return None
    number, size = numbers[0], len(numbers[0])
    if size > _MOST_DIGITS:
        return None
    least, most = (10 ** (size - 1) if size > 1 else 5), 10**size - 1
    drawn = choose.randint(least, most)
    if _has_one_plural(int(number)):
        other = str(next(filter(_has_one_plural, chain(range(drawn, most + 1), range(least, drawn)))))
    elif size > 2:
        other = str(drawn)[:-2] + number[-2:]
    else:
        return None
    return _with_text(pair, _NUMBER.sub(other, pair.text), _NUMBER.sub(other, pair.target))


def _has_one_plural(number: int) -> bool:
    return number % 10 in (0, *range(5, 10)) or number % 100 in range(11, 15)


def _with_text(pair: SentencePair, text: str, target: str) -> SentencePair:
    return replace(pair, source=pair.source[: pair.text_at] + text, target=target)


_SHARE_JOINED = 1 / 32
_ALTERATIONS: dict[str, tuple[float, Alteration]] = {
    "without its end mark": (1 / 32, _without_end),
    "another number": (1 / 8, _other_number),
}

KINDS = ("joined", *_ALTERATIONS)
"""Names of all alterations."""
