"""Statistics of the training lines of a model: lengths, sentences, length ratios, letter case, characters.

A model is good at what it has seen. `Translator` splits lines that are longer than its training lines, and flags lines
that differ from them in other ways.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from clearhead.text.placeholders import has_words
from clearhead.text.sentence_splitting import split_sentences
from clearhead.text.unicode_forms import RARE, TextForm, count_forms, form_of_source, form_of_target

LetterCase = Literal["capitals", "small letters"]

MOST_SENTENCES = 10
"""Lines with this many sentences or more are counted together."""

RATIO_FLOOR = 20
"""Length of a text, in characters, below which its ratio to another is seldom a mistake, as "Ja" for "That is right".
Cleaning counts the shorter side as this long; elsewhere it is added to both sides."""

COPY_WINDOW, COPY_STRIDE = 12, 6
"""Bytes in a window of the source that is searched in the target, and bytes from one window to the next. A window is a
word of twelve letters, or four Chinese characters. Names and cognates are shorter than most windows."""
LEAST_WINDOWS = 3
"""Windows of a source that is long enough to judge."""
_SEARCHED = 2_000
"""Bytes of the longest target that is searched once a window; a longer one would take quadratic time."""

COPIED_SHARE = 0.5
"""Share of the windows found in a target from which it counts as a copy of its source. None of the 10,000 human
translations of Tatoeba's test set counts as one, and five of the 3,003 of newstest2014: lists of names, and a sentence
that quotes the source."""

CASED_WORDS = re.compile(r"[^\W\d_]{2,}")

WITHOUT_CAPITAL = "ßªº"
"""Small letters that also occur in lines of capitals."""

_RATIO_STEPS = 100
"""Ratios are counted in steps of a hundredth of their natural logarithm."""


# Bounds far above real corpora, so that a forged file cannot demand more than a machine can compute.
_Count = Annotated[int, Field(ge=0, le=10**12)]
_Form = Annotated[str, Field(pattern="^(composed|decomposed|U\\+[0-9A-F]{4,5}( [as1. ]{2}| canonical)?)$")]
_Length = Annotated[int, Field(ge=1, le=10**9)]
_Ratio = Annotated[float, Field(gt=0, le=1e9)]
_Forms = Annotated[dict[_Form, _Count], Field(max_length=10_000)]


class _Part(BaseModel):
    # A later version of clearhead may store more fields.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class LineLengths(_Part):
    """Lengths of the lines of one side, in tokens, counting the end token and a language tag."""

    median: _Length
    p99: _Length
    """Length that 99 of 100 lines do not exceed."""
    p999: _Length
    """Length that 999 of 1,000 lines do not exceed."""
    max: _Length


class LineStatistics(_Part):
    """Statistics of a model's training lines."""

    source_tokens: LineLengths
    target_tokens: LineLengths
    sentences: Annotated[tuple[_Count, ...], Field(min_length=1, max_length=MOST_SENTENCES)]
    """Number of lines whose source has one sentence, two, and so on; the tenth counts those with ten or more."""
    least_ratio: _Ratio
    """Smallest usual `length_ratio`: 999 of 1,000 pairs have at least this one."""
    most_ratio: _Ratio
    """Largest usual `length_ratio`: 999 of 1,000 pairs have at most this one."""
    copies: _Count
    """Number of pairs whose target is mostly a copy of its source, see `is_copied`."""
    capitals: _Count
    """Number of lines whose source is all in capitals, see `letter_case`."""
    small_letters: _Count
    """Number of lines whose source is all in small letters."""
    uneven_spaces: _Count
    """Number of lines whose source has white space at its ends, or several in a row."""
    changed_without_words: _Count
    """Number of lines whose source has no words (`has_words`) and whose target is another text."""
    source_forms: _Forms
    """Number of lines whose source has each mark, each kind of white space and each Unicode form, see `count_forms`."""
    target_forms: _Forms
    source_characters: str
    """Every character of the sources, as hexadecimal ranges of code points, such as `20 41-5A`."""
    target_characters: str

    @field_validator("sentences")
    @classmethod
    def _has_lines(cls, counts: tuple[int, ...]) -> tuple[int, ...]:
        if not any(counts):
            raise ValueError("there is no line")
        return counts

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Read the result of `model_dump`.

        Raises:
            ValueError: If the values are not line statistics, naming the first wrong field.
        """
        try:
            statistics = cls.model_validate(values)
            _characters(statistics.source_characters)
            _characters(statistics.target_characters)
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(
                f"{'.'.join(map(str, problem['loc'])) or 'statistics'}: {problem['msg'].removeprefix('Value error, ')}"
            ) from None
        return statistics

    @property
    def lines(self) -> int:
        """Number of training pairs."""
        return sum(self.sentences)

    def covers(self, sentences: int, tokens: int) -> bool:
        """Return whether a model trained on these lines should translate a line whole.

        It should if the line is no longer than 999 of 1,000 training lines, and at least as many of them had as many
        sentences or more as had just one: what was seen more often is translated better (docs/translation.md).

        Args:
            sentences: Number of sentences of the line.
            tokens: Number of tokens of the line, counting its language tag and the end token.
        """
        as_many = sum(self.sentences[min(sentences, MOST_SENTENCES) - 1 :])
        return tokens <= self.source_tokens.p999 and (sentences == 1 or as_many >= max(1, self.sentences[0]))

    def rare_cases(self) -> tuple[LetterCase, ...]:
        """Return the letter cases that are rare in the lines: `capitals`, `small letters`, both or neither."""
        counts: dict[LetterCase, int] = {"capitals": self.capitals, "small letters": self.small_letters}
        return tuple(case for case, count in counts.items() if count < RARE * self.lines)

    def seldom_has_stray_space(self) -> bool:
        """Return whether white space at the ends of lines, and several in a row, is rare in the lines."""
        return self.uneven_spaces < RARE * self.lines

    def forms(self) -> tuple[TextForm, TextForm]:
        """Return the Unicode forms in which the model knows sources and targets."""
        source = form_of_source(self.source_forms, self.lines, self.known_characters()[0])
        return source, form_of_target(self.target_forms, self.lines)

    def changes_without_words(self) -> bool:
        """Return whether sources without words that become another text are not rare, such as dates in figures."""
        return self.changed_without_words >= RARE * self.lines

    def __str__(self) -> str:
        """Return a summary of lengths and sentences, for messages about longer lines."""
        several = 1 - self.sentences[0] / self.lines
        return f"99.9 % of at most {self.source_tokens.p999:,} tokens, {100 * several:.1f} % of several sentences"

    def known_characters(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the characters of the sources, and those of the targets."""
        return _characters(self.source_characters), _characters(self.target_characters)


def length_ratio(source: str, target: str) -> float:
    """Return the length of a target divided by its source's, in characters, smoothed towards 1 for short texts."""
    return (len(target) + RATIO_FLOOR) / (len(source) + RATIO_FLOOR)


def letter_case(text: str) -> LetterCase | None:
    """Return the case of all letters of a text; None if mixed, if a letter has no case, or with fewer than two words.

    A single word does not show the case of a line: it may be a name, `OK` or a numeral. Nor do small letters after a
    number, as in `3 dogs run`, which has no capital anyway.

    >>> letter_case("EIN HUND!"), letter_case("ein hund"), letter_case("Ein Hund"), letter_case("NATO")
    ('capitals', 'small letters', None, None)
    >>> letter_case("WTOとは何ですか。"), letter_case("EINE STRAßE")
    (None, 'capitals')
    """
    for letter in WITHOUT_CAPITAL:
        text = text.replace(letter, "")
    if not (text.isupper() or text.islower()) or len(CASED_WORDS.findall(text)) < 2:
        return None
    if any(letter.lower() == letter.upper() for letter in text if letter.isalpha()):
        return None
    if text.isupper():
        return "capitals"
    return "small letters" if next(filter(str.isalnum, text)).isalpha() else None


def has_uneven_space(text: str) -> bool:
    """Return whether a text has white space at its ends, or several in a row.

    >>> has_uneven_space("a\u00a0dog"), has_uneven_space(" a dog"), has_uneven_space("a  dog")
    (False, True, True)
    """
    return text != text.strip() or re.search(r"\s\s", text) is not None


def is_copied(source: str, target: str) -> bool:
    """Return whether most of a source occurs unchanged in its target; False for a source that is too short to judge.

    >>> is_copied("Zwei junge Männer sind im Freien.", "Zwei junge Männer sind in the open.")
    True
    """
    read, written = source.strip().encode("utf-8", "surrogatepass"), target.encode("utf-8", "surrogatepass")
    known: bytes | set[bytes] = written
    if len(written) > _SEARCHED:
        known = {written[at : at + COPY_WINDOW] for at in range(len(written) - COPY_WINDOW + 1)}
    windows = range(0, len(read) - COPY_WINDOW + 1, COPY_STRIDE)
    found = [read[at : at + COPY_WINDOW] in known for at in windows]
    return len(found) >= LEAST_WINDOWS and sum(found) >= COPIED_SHARE * len(found)


_COUNTERS = ("_source_tokens", "_target_tokens", "_sentences", "_ratios", "_cases")
_NUMBERS = ("_copies", "_uneven_spaces", "_changed_without_words")


class LineCounter:
    """Collects the statistics of training pairs one by one, in constant memory."""

    def __init__(self, source_language: str | None = None) -> None:
        """Start empty; the language of the sources determines how their sentences are split."""
        self._language = source_language
        self._source_tokens: Counter[int] = Counter()
        self._target_tokens: Counter[int] = Counter()
        self._sentences: Counter[int] = Counter()
        self._ratios: Counter[int] = Counter()
        self._characters: tuple[set[str], set[str]] = (set(), set())
        self._forms: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._copies = self._uneven_spaces = self._changed_without_words = 0
        self._cases: Counter[LetterCase | None] = Counter()

    def add(self, source: str, target: str, source_tokens: int, target_tokens: int) -> None:
        """Count a pair: texts without a language tag; numbers of tokens with the tag and the end token."""
        self._source_tokens[source_tokens] += 1
        self._target_tokens[target_tokens] += 1
        self._sentences[min(len(split_sentences(source, self._language)), MOST_SENTENCES)] += 1
        self._ratios[round(_RATIO_STEPS * math.log(length_ratio(source, target)))] += 1
        self._copies += is_copied(source, target)
        self._cases[letter_case(source)] += 1
        self._uneven_spaces += has_uneven_space(source)
        for forms, text in zip(self._forms, (source, target), strict=True):
            forms.update(count_forms(text))
        self._changed_without_words += source != target and not has_words(source)
        self.add_characters(source, target)

    def add_characters(self, source: str, target: str) -> None:
        """Count only the characters of a pair that is not in the corpus: an altered copy."""
        for characters, text in zip(self._characters, (source, target), strict=True):
            characters.update(text)

    def to_dict(self) -> dict[str, Any]:
        """Return what was counted as JSON values, for `update`."""
        return {
            **{name: list(getattr(self, name).items()) for name in _COUNTERS},
            **{name: getattr(self, name) for name in _NUMBERS},
            "_characters": ["".join(sorted(side)) for side in self._characters],
            "_forms": [dict(side) for side in self._forms],
        }

    def update(self, others: Mapping[str, Any]) -> None:
        """Add the pairs that another counter has counted, by its `to_dict`."""
        for name in _COUNTERS:
            getattr(self, name).update(dict(others[name]))
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + others[name])
        for side in range(2):
            self._characters[side].update(others["_characters"][side])
            self._forms[side].update(others["_forms"][side])

    def statistics(self) -> LineStatistics:
        """Return the statistics of the pairs; there must be at least one."""
        return LineStatistics(
            source_tokens=_lengths(self._source_tokens),
            target_tokens=_lengths(self._target_tokens),
            sentences=tuple(self._sentences[number] for number in range(1, max(self._sentences) + 1)),
            least_ratio=round(math.exp(quantile(self._ratios, 0.001) / _RATIO_STEPS), 3),
            most_ratio=round(math.exp(quantile(self._ratios, 0.999) / _RATIO_STEPS), 3),
            copies=self._copies,
            capitals=self._cases["capitals"],
            small_letters=self._cases["small letters"],
            uneven_spaces=self._uneven_spaces,
            changed_without_words=self._changed_without_words,
            source_forms=dict(sorted(self._forms[0].items())),
            target_forms=dict(sorted(self._forms[1].items())),
            source_characters=_ranges(self._characters[0]),
            target_characters=_ranges(self._characters[1]),
        )


def _lengths(counts: Counter[int]) -> LineLengths:
    median, p99, p999 = (quantile(counts, share) for share in (0.5, 0.99, 0.999))
    return LineLengths(median=median, p99=p99, p999=p999, max=max(counts))


def quantile(counts: Counter[int], share: float) -> int:
    """Return the smallest value that at least the given share of all counted values do not exceed; 0 without any."""
    wanted = math.ceil(share * counts.total())
    values = sorted(counts)
    reached = accumulate(counts[value] for value in values)
    return next((value for value, number in zip(values, reached, strict=True) if number >= wanted), 0)


def _ranges(characters: Iterable[str]) -> str:
    """Return characters as hexadecimal ranges of code points, printable whatever they are.

    >>> _ranges("ACB z")
    '20 41-43 7A'
    """
    ranges: list[tuple[int, int]] = []
    for code in sorted(map(ord, characters)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return " ".join(f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in ranges)


def _characters(ranges: str) -> frozenset[str]:
    """Read the result of `_ranges`.

    Raises:
        ValueError: If the text is not such a list of ranges.
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
