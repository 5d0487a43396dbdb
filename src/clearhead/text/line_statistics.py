"""What the lines were like that a model was trained on: how long, of how many sentences, in which characters.

A model is good at what it has seen: `Translator` splits lines that are longer, and flags those that are stranger.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from clearhead.text.sentence_splitting import split_sentences

__all__ = [
    "Lengths",
    "LetterCase",
    "LineCounter",
    "LineStatistics",
    "has_stray_space",
    "is_copied",
    "length_ratio",
    "letter_case",
]

LetterCase = Literal["capitals", "small letters"]

MOST_SENTENCES = 10
"""Lines of more sentences are counted among those of so many."""

RATIO_FLOOR = 20
"""Characters added to both sides before their lengths are compared: short segments vary more, and are seldom wrong."""

_WINDOW, _STRIDE = 12, 6
"""Bytes of a source that are looked for in the other side, a window in every six: a word of twelve letters, or four
Chinese characters. Names and cognates are shorter than most windows."""

COPIED_SHARE = 0.5
"""A text in which so many of the windows are found is a copy of its source. Of the 10,000 human translations of
Tatoeba's test set none is one, of the 3,003 of newstest2014 five: lists of names, a sentence that quotes the source."""

RARE = 0.01
"""What less than this share of the training lines is like, a model does not know well."""

_CASED_WORD = re.compile(r"[^\W\d_]{2,}")

_WITHOUT_CAPITAL = dict.fromkeys(map(ord, "ßªº"))
"""Small letters that stand in lines of capitals too."""

_RATIO_STEPS = 100
"""Ratios are counted in steps of a hundredth of their logarithm."""


# Bounds far above what a corpus has: a file that is made up must not ask for more than a machine can compute.
_Count = Annotated[int, Field(ge=0, le=10**12)]
_Length = Annotated[int, Field(ge=1, le=10**9)]
_Ratio = Annotated[float, Field(gt=0, le=1e9)]


class _Part(BaseModel):
    # A later clearhead may say more of a corpus than this one reads.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Lengths(_Part):
    """How long the lines of a side are, in tokens, the end token and a language tag included."""

    median: _Length
    p99: _Length
    """99 of 100 lines are not longer."""
    p999: _Length
    """999 of 1,000 lines are not longer."""
    max: _Length


class LineStatistics(_Part):
    """The training lines of a model, in numbers."""

    source_tokens: Lengths
    target_tokens: Lengths
    sentences: Annotated[tuple[_Count, ...], Field(min_length=1, max_length=MOST_SENTENCES)]
    """Lines whose source has one sentence, two, ...; the tenth number counts those of ten and more."""
    least_ratio: _Ratio
    """`length_ratio` that 999 of 1,000 pairs exceed or reach."""
    most_ratio: _Ratio
    """`length_ratio` that 999 of 1,000 pairs do not exceed."""
    copies: _Count
    """Pairs whose target is mostly a copy of its source, see `is_copied`."""
    capitals: _Count | None = None
    """Lines whose source is all in capitals, see `letter_case`; an earlier clearhead did not count them."""
    small_letters: _Count | None = None
    """Lines whose source is all in small letters."""
    stray_spaces: _Count | None = None
    """Lines whose source has other white space than one space between words, see `has_stray_space`."""
    source_characters: str
    """Every character of the sources, as ranges of code points in hexadecimal, such as `20 41-5A`."""
    target_characters: str

    @field_validator("sentences")
    @classmethod
    def _has_lines(cls, counts: tuple[int, ...]) -> tuple[int, ...]:
        if not any(counts):
            raise ValueError("there is no line")
        return counts

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Read what `model_dump` gave.

        Raises:
            ValueError: If they are no statistics, naming the first field that is wrong.
        """
        try:
            found = cls.model_validate(values)
            _characters(found.source_characters)
            _characters(found.target_characters)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(
                f"{'.'.join(map(str, problem['loc'])) or 'statistics'}: {problem['msg'].removeprefix('Value error, ')}"
            ) from None
        return found

    @property
    def lines(self) -> int:
        """Training pairs."""
        return sum(self.sentences)

    def covers(self, sentences: int, tokens: int) -> bool:
        """Tell whether a model that was trained on these lines is at its best with a line as a whole.

        It is where the line is no longer than 999 of 1,000 training lines, and at least as many of them had as many
        sentences or more as had just one: what was seen more often is translated better (docs/translation.md).

        Args:
            sentences: Of the line.
            tokens: Of the line, its language tag and the end token included.
        """
        as_many = sum(self.sentences[min(sentences, MOST_SENTENCES) - 1 :])
        return tokens <= self.source_tokens.p999 and (sentences == 1 or as_many >= max(1, self.sentences[0]))

    def rare_cases(self) -> tuple[LetterCase, ...]:
        """Return what few of the lines are written in: `capitals`, `small letters`, both or neither."""
        counts: dict[LetterCase, int | None] = {"capitals": self.capitals, "small letters": self.small_letters}
        return tuple(case for case, count in counts.items() if count is not None and count < RARE * self.lines)

    def seldom_has_stray_space(self) -> bool:
        """Tell whether few of the lines are known to have stray white space."""
        return self.stray_spaces is not None and self.stray_spaces < RARE * self.lines

    def __str__(self) -> str:
        """Say in words what a user needs to know before translating longer lines."""
        several = 1 - self.sentences[0] / self.lines
        return f"99.9 % of at most {self.source_tokens.p999:,} tokens, {100 * several:.1f} % of several sentences"

    def known_characters(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return every character of the sources, and every one of the targets."""
        return _characters(self.source_characters), _characters(self.target_characters)


def length_ratio(source: str, target: str) -> float:
    """Return how many times longer a target is than its source, in characters, short texts drawn towards 1."""
    return (len(target) + RATIO_FLOOR) / (len(source) + RATIO_FLOOR)


def letter_case(text: str) -> LetterCase | None:
    """Return what all letters of a text are; None if they differ, or some have no case, or there are no two words.

    A word alone says nothing of how a line is written: it may be a name, `OK` or a numeral. Nor do small letters behind
    a number, as in `3 dogs run`, which has no capital in any case.

    >>> letter_case("EIN HUND!"), letter_case("ein hund"), letter_case("Ein Hund"), letter_case("NATO")
    ('capitals', 'small letters', None, None)
    >>> letter_case("WTOとは何ですか。"), letter_case("EINE STRAßE")
    (None, 'capitals')
    """
    text = text.translate(_WITHOUT_CAPITAL)
    if not (text.isupper() or text.islower()) or len(_CASED_WORD.findall(text)) < 2:
        return None
    if any(letter.lower() == letter.upper() for letter in text if letter.isalpha()):
        return None
    if text.isupper():
        return "capitals"
    return "small letters" if next(filter(str.isalnum, text)).isalpha() else None


def has_stray_space(text: str) -> bool:
    """Tell whether a text has other white space than one space between words: at an end, a tab, one that never breaks.

    >>> has_stray_space("a dog"), has_stray_space(" a dog"), has_stray_space("a  dog")
    (False, True, True)
    """
    return text != " ".join(text.split())


def is_copied(source: str, target: str) -> bool:
    """Tell whether most of a source stands in its target as it is; too short a source is never said to.

    >>> is_copied("Zwei junge Männer sind im Freien.", "Zwei junge Männer sind in the open.")
    True
    """
    read, written = source.strip().encode("utf-8", "surrogatepass"), target.encode("utf-8", "surrogatepass")
    windows = [read[at : at + _WINDOW] for at in range(0, len(read) - _WINDOW + 1, _STRIDE)]
    return len(windows) >= 3 and sum(window in written for window in windows) >= COPIED_SHARE * len(windows)


class LineCounter:
    """Takes the training pairs one by one, in constant memory, and sums up what they are like."""

    def __init__(self, source_language: str | None = None) -> None:
        """Begin; the language of the sources says how their sentences end."""
        self._language = source_language
        self._source_tokens: Counter[int] = Counter()
        self._target_tokens: Counter[int] = Counter()
        self._sentences: Counter[int] = Counter()
        self._ratios: Counter[int] = Counter()
        self._characters: tuple[set[str], set[str]] = (set(), set())
        self._copies = self._stray_spaces = 0
        self._cases: Counter[LetterCase | None] = Counter()

    def add(self, source: str, target: str, source_tokens: int, target_tokens: int) -> None:
        """Count a pair: its texts, without a language tag, and its tokens, the tag and the end tokens included."""
        self._source_tokens[source_tokens] += 1
        self._target_tokens[target_tokens] += 1
        self._sentences[min(len(split_sentences(source, self._language)), MOST_SENTENCES)] += 1
        self._ratios[round(_RATIO_STEPS * math.log(length_ratio(source, target)))] += 1
        self._copies += is_copied(source, target)
        self._cases[letter_case(source)] += 1
        self._stray_spaces += has_stray_space(source)
        self.add_characters(source, target)

    def add_characters(self, source: str, target: str) -> None:
        """Count the characters alone of a pair that the corpus does not have: an altered copy."""
        for characters, text in zip(self._characters, (source, target), strict=True):
            characters.update(text)

    def statistics(self) -> LineStatistics:
        """Return what the pairs were like; there must be one."""
        return LineStatistics(
            source_tokens=_lengths(self._source_tokens),
            target_tokens=_lengths(self._target_tokens),
            sentences=tuple(self._sentences[number] for number in range(1, max(self._sentences) + 1)),
            least_ratio=round(math.exp(_quantile(self._ratios, 0.001) / _RATIO_STEPS), 3),
            most_ratio=round(math.exp(_quantile(self._ratios, 0.999) / _RATIO_STEPS), 3),
            copies=self._copies,
            capitals=self._cases["capitals"],
            small_letters=self._cases["small letters"],
            stray_spaces=self._stray_spaces,
            source_characters=_ranges(self._characters[0]),
            target_characters=_ranges(self._characters[1]),
        )


def _lengths(counts: Counter[int]) -> Lengths:
    median, p99, p999 = (_quantile(counts, share) for share in (0.5, 0.99, 0.999))
    return Lengths(median=median, p99=p99, p999=p999, max=max(counts))


def _quantile(counts: Counter[int], share: float) -> int:
    """Return the least value that at least a share of all values do not exceed."""
    wanted = math.ceil(share * counts.total())
    values = sorted(counts)
    reached = accumulate(counts[value] for value in values)
    return next(value for value, number in zip(values, reached, strict=True) if number >= wanted)


def _ranges(characters: Iterable[str]) -> str:
    """Write characters as ranges of code points: printable whatever they are.

    >>> _ranges("ACB z")
    '20 41-43 7A'
    """
    found: list[tuple[int, int]] = []
    for code in sorted(map(ord, characters)):
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return " ".join(f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in found)


def _characters(ranges: str) -> frozenset[str]:
    """Read what `_ranges` wrote.

    Raises:
        ValueError: If it is something else.
    """
    return frozenset(map(chr, _codes(ranges)))


def _codes(ranges: str) -> Iterator[int]:
    least = 0
    for part in ranges.split():
        first, dash, last = part.partition("-")
        start, end = int(first, 16), int(last if dash else first, 16)
        if not least <= start <= end <= sys.maxunicode:
            raise ValueError(f"the range {part!r:.40} is not one of characters, or is out of order")
        yield from range(start, end + 1)
        least = end + 1
