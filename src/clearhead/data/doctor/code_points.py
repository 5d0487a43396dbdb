"""Pairs in bounded batches, each side one array of code points, with features of the texts for checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.characters import CAPITAL, DIGIT, SPACE, WORD, character_table
from clearhead.formats import SentencePair
from clearhead.runtime.lazy import cached_property

BATCH_PAIRS = 8_192
BATCH_CHARACTERS = 1_000_000
SEEN_CHARACTERS = 10_000
"""Most characters examined of a side; the rest counts only for lengths and equality."""

Sides = tuple[list[str], list[str]]
"""Sources and targets."""

_NAME_CHARACTERS = 4


class Texts:
    """The texts of one side of a batch.

    Args:
        texts: The texts, at least one.
    """

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        seen = [text[:SEEN_CHARACTERS] for text in texts]
        # A line feed after every text separates neighbours, and gives every text at least one character.
        encoded = ("\n".join(seen) + "\n").encode("utf-32-le", "surrogatepass")
        self.codes: NDArray[np.uint32] = np.frombuffer(encoded, dtype=np.uint32)
        self.ends: NDArray[np.int64] = np.cumsum(np.fromiter(map(len, seen), np.int64, len(seen)) + 1) - 1
        """Offset of the line feed after each text."""
        self.starts: NDArray[np.int64] = np.append(0, self.ends[:-1] + 1)
        self.lengths: NDArray[np.int64] = np.fromiter(map(len, texts), np.int64, len(texts))
        """Number of characters of each text."""
        table = character_table()
        self.kinds: NDArray[np.uint16] = table.kinds[self.codes]
        """Bit flags of every character."""
        if not self.kinds.all():
            table.learn(self.codes)
            self.kinds = table.kinds[self.codes]

    def sums(self, values: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the sum over each text of a value per character."""
        return np.add.reduceat(values, self.starts, dtype=np.int64)

    @cached_property
    def has(self) -> NDArray[np.uint16]:
        """The kinds of characters in each text, as bit flags."""
        return np.bitwise_or.reduceat(self.kinds, self.starts)

    @cached_property
    def words(self) -> NDArray[np.int64]:
        """Number of words of each text, separated by white space; a Chinese sentence is one."""
        space = (self.kinds & SPACE) != 0
        begins = ~space
        begins[1:] &= space[:-1]
        return self.sums(begins)

    @cached_property
    def plain(self) -> NDArray[np.uint32]:
        """Every character as a lower-case letter, an ASCII digit or a space."""
        return character_table().plain[self.codes]

    @cached_property
    def scripts(self) -> NDArray[np.uint8]:
        """The script of every letter, by its number in this process; 0 for other characters."""
        return character_table().scripts[self.codes]

    def letters_by_script(self) -> Counter[str]:
        """Return the number of letters of each script in all texts."""
        names, counts = character_table().script_names, np.bincount(self.scripts).tolist()
        return Counter({names[script]: count for script, count in enumerate(counts) if script and count})

    @cached_property
    def punctuation(self) -> NDArray[np.uint8]:
        """The punctuation of each text that translations keep, as bit flags."""
        return np.bitwise_or.reduceat(character_table().punctuation[self.codes], self.starts)

    @cached_property
    def names(self) -> NDArray[np.uint64]:
        """Hashed set of each text's numbers and capitalized words: one of 64 bits each, by their first four characters.

        Translations share numbers and names, often with only the first letters in common: `Johannes`, `John`.
        """
        is_word = (self.kinds & WORD) != 0
        begins = (self.kinds & (CAPITAL | DIGIT)) != 0
        begins[1:] &= ~is_word[:-1]
        at = np.flatnonzero(begins)
        hashes = np.zeros(at.size, dtype=np.uint64)
        goes_on = np.ones(at.size, dtype=bool)
        for offset in range(_NAME_CHARACTERS):
            place = np.minimum(at + offset, self.codes.size - 1)  # the end of the text, which is in no word
            goes_on &= is_word[place]
            hashes = hashes * np.uint64(0x100000001B3) + np.where(goes_on, self.plain[place], 0).astype(np.uint64)
        bits = np.zeros(self.codes.size, dtype=np.uint64)
        bits[at] = np.uint64(1) << ((hashes * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58))
        return np.bitwise_or.reduceat(bits, self.starts)


@dataclass(frozen=True)
class TextBatch:
    """The texts of consecutive pairs."""

    source: Texts
    target: Texts

    @classmethod
    def of(cls, sides: Sides) -> Self:
        """Return a batch of sources and targets."""
        return cls(*map(Texts, sides))

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.source.texts)

    @cached_property
    def blank(self) -> NDArray[np.bool_]:
        """Whether a side of each pair is blank."""
        return (self.source.words == 0) | (self.target.words == 0)

    def pair(self, place: int) -> tuple[str, str]:
        """Return the source and the target of a pair."""
        return self.source.texts[place], self.target.texts[place]

    def first_pairs(self, most: int) -> TextBatch:
        """Return a batch of some of the first pairs."""
        return self.of((self.source.texts[:most], self.target.texts[:most]))


@dataclass(frozen=True)
class PairBatch:
    """Consecutive pairs."""

    pairs: list[SentencePair]
    first: int
    """Number of pairs before them."""

    @cached_property
    def sides(self) -> Sides:
        """The sources and the targets."""
        return [pair.source for pair in self.pairs], [pair.target for pair in self.pairs]

    @cached_property
    def texts(self) -> TextBatch:
        """Both sides as arrays."""
        return TextBatch.of(self.sides)

    @cached_property
    def lines(self) -> NDArray[np.uint32]:
        """The line in its file on which each pair begins."""
        return np.fromiter((pair.line for pair in self.pairs), np.uint32, len(self.pairs))


def batches_of(pairs: Iterable[SentencePair]) -> Iterator[PairBatch]:
    """Split a stream into batches of bounded pairs and characters; only a single pair may exceed the latter."""
    waiting: list[SentencePair] = []
    first = size = 0
    for pair in pairs:
        waiting.append(pair)
        size += len(pair.source) + len(pair.target)
        if len(waiting) == BATCH_PAIRS or size >= BATCH_CHARACTERS:
            yield PairBatch(waiting, first)
            first, size, waiting = first + len(waiting), 0, []
    if waiting:
        yield PairBatch(waiting, first)
