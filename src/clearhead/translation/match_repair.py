"""Repair of similar memory matches: replace in the translation what differs between the line and the match's source.

Numbers and placeholders are replaced where the translation has them exactly as often as the source. End marks and one
word are taken from the model's translation of the line; the word is found in both translations by word alignment.
Whatever is ambiguous is not repaired.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from gettext import c2py
from itertools import pairwise
from typing import NamedTuple

from clearhead.errors import ConfigError, DataError
from clearhead.text.languages import plural_forms
from clearhead.text.number_differences import GROUP, NUMBER, invented_numbers, missing_numbers
from clearhead.text.placeholders import find_placeholders
from clearhead.text.quality_flags import missing_placeholders
from clearhead.text.word_links import Link, Span, parts_of_words
from clearhead.translation.result import MemoryMatch
from clearhead.translation.terminology import Terms, forms_in, term_words

_RUNS = re.compile(r"\d+")
_END_MARKS = re.compile(r"\s*[.,:;!?…。．，、：；！？،؛؟۔।]*\s*$")
_ALIKE = str.maketrans("。．，、：；！？،؛؟۔।", "..,,:;!?,;?..")
"""End marks of other scripts, and those of the Latin script."""
EXACT_FROM = 0.75
"""Minimum similarity of matches that are repaired without the model, unless another one is given. Of 2,427 segments of
held-out catalogues (Python documentation, English to French), 37 are repaired so from a memory of 18,000 pairs: their
chrF is 95.3, that of the matches as they are 77.6. What needs the model is repaired only on request."""

_START_MARKS = re.compile("[¿¡]")
"""Marks at the start of a sentence that belong to its end mark."""
_SUFFIX = re.compile(r"['’:]\w")
"""Start of an ending that belongs to the number before it, as in Turkish `3'ün` and Finnish `3:n`."""
_MOST_DIGITS = 18
"""Digits of a number of which the plural form is looked for."""
_STRICT = "pl"
"""Language whose plural forms decide if the target's are unknown: Polish distinguishes 1, 2 to 4, and 5."""

Edit = tuple[int, int, str]
"""Start and end of a stretch of text, and the text to put in its place."""


class _Unit(NamedTuple):
    """A number, a placeholder, a word or a mark."""

    kind: str
    """`number`, `code`, or `word`, which includes marks."""
    key: tuple[str, ...]
    """What is compared: the runs of digits of a number; the text of anything else."""
    text: str
    start: int
    end: int


class Repair(NamedTuple):
    """What is to be replaced in the translation of a match."""

    target: str
    edits: tuple[Edit, ...]
    """Replaced numbers and placeholders."""
    end: str | None = None
    """The end marks of the line, if those of the match's source differ."""
    word: tuple[Span, Span] | None = None
    """The word of the match's source and that of the line, if one differs."""

    @property
    def needs_model(self) -> bool:
        """Whether the model's translation of the line is needed."""
        return bool(self.end) or self.word is not None

    def applied(self, line: str, translation: str | None = None, word: Edit | None = None) -> str | None:
        """Return the repaired translation; None if it lacks a number or placeholder of the line, or has others.

        Args:
            line: The line.
            translation: The model's translation of the line, whose end marks are taken.
            word: The replaced word of the match's translation, from `word_edit`.
        """
        edits, text = sorted([*self.edits, *([word] if word else [])]), self.target
        if any(end > start for (_, end, _), (start, _, _) in pairwise(edits)):
            return None
        for start, end, new in reversed(edits):
            text = text[:start] + new + text[end:]
        if self.end is not None:
            marks = _end_marks(translation or "") if self.end else ""
            if _plain(marks) != self.end:
                return None
            text = text[: len(text) - len(_end_marks(text))] + marks
        found = (missing_numbers(line, text), invented_numbers(line, text))
        codes = (missing_placeholders(line, text), missing_placeholders(text, line))
        return None if any(found) or any(codes) or not text.strip() else text


@dataclass(frozen=True, slots=True)
class MatchRepairer:
    """Repairs matches, so that they can be reused.

    Args:
        least: Minimum similarity of a match that is repaired; None repairs from `EXACT_FROM` on what can be repaired
            without the model.
        language: Language of the translations; empty if it is unknown.
        terms: Terms that a repaired translation must use.
        align: Returns the links of pairs between `parts_of_words`; None if there is no model that does.

    Raises:
        ConfigError: If `least` is not above 0 and at most 1.
    """

    least: float | None = None
    language: str = ""
    terms: Terms | None = None
    align: Callable[[list[str], list[str]], list[list[Link]]] | None = None

    def __post_init__(self) -> None:
        if self.least is not None and not 0.0 < self.least <= 1.0:
            raise ConfigError(f"reuse_from ({self.least}) must be above 0 and at most 1, such as 0.85")

    def __call__(self, line: str, match: MemoryMatch) -> MemoryMatch:
        """Return a match, repaired if it can be without the model's translation."""
        repair = self._repair(line, match)
        return match if repair is None or repair.needs_model else self._with(line, match, repair.applied(line.strip()))

    def needs_model(self, line: str, match: MemoryMatch | None) -> bool:
        """Return whether a match may be repaired with the help of the model's translation."""
        if match is None or self.least is None:
            return False
        return (repair := self._repair(line, match)) is not None and repair.needs_model

    def by_model(self, line: str, match: MemoryMatch, translation: str) -> MemoryMatch:
        """Return a match, repaired if the model's translation of the line allows it."""
        repair, line = self._repair(line, match), line.strip()
        if self.least is None or repair is None or not repair.needs_model:
            return match
        word = None
        if repair.word is not None:
            try:
                pairs = [match.source, line], [match.target, translation]
                links = self.align(*pairs) if self.align is not None else None
            except (ConfigError, DataError):  # a model without cross-attention, or too long a text
                links = None
            word = None if links is None else word_edit(repair, match.source, line, translation, links)
            if word is None:
                return match
        return self._with(line, match, repair.applied(line, translation, word))

    def _repair(self, line: str, match: MemoryMatch) -> Repair | None:
        least = EXACT_FROM if self.least is None else self.least
        if match.is_reused or not least <= match.similarity < 1.0:
            return None
        return repair_of(line.strip(), match.source, match.target, self.language)

    def _with(self, line: str, match: MemoryMatch, text: str | None) -> MemoryMatch:
        found = [] if self.terms is None else self.terms.found_in(line)
        if text is None or not all(forms_in(found, text)):
            return match
        return replace(match, is_reused=True, repaired=text)


NO_REPAIRS = MatchRepairer(least=1.0)


def repair_of(line: str, source: str, target: str, language: str = "") -> Repair | None:
    """Return how the translation of a similar text is repaired for a line; None if it cannot be.

    Args:
        line: The line, without white space at its ends.
        source: The similar text.
        target: Its translation.
        language: Language of the translation, whose plural forms must agree; empty if it is unknown.

    >>> repair_of("New in version 3.14.", "New in version 3.9.", "Neu in Version 3.9.").applied("New in version 3.14.")
    'Neu in Version 3.14.'
    """
    ends = _plain(_end_marks(line)), _plain(_end_marks(source))
    own, others = (_units(text[: len(text) - len(_end_marks(text))]) for text in (line, source))
    if len(own) != len(others):
        return None
    if ends[0] != ends[1] and (_plain(_end_marks(target)) != ends[1] or _START_MARKS.search(target)):
        return None
    changes = [(old, new) for old, new in zip(others, own, strict=True) if old.key != new.key]
    exact = [(old, new) for old, new in changes if old.kind == new.kind != "word"]
    words = [(old, new) for old, new in changes if old.kind == new.kind == "word"]
    if len(exact) + len(words) < len(changes) or len(words) > 1:
        return None
    if words and not all(unit.text[0].isalpha() for unit in words[0]):
        return None
    translated = _units(target)
    edits = _exact_edits(exact, others, translated)
    numbers = [(old, new) for old, new in exact if old.kind == "number"]
    if edits is None or not all(_fit(*pair, others, target, translated, language) for pair in numbers):
        return None
    spans = [((old.start, old.end), (new.start, new.end)) for old, new in words]
    return Repair(target, tuple(edits), ends[0] if ends[0] != ends[1] else None, spans[0] if spans else None)


def word_edit(repair: Repair, source: str, line: str, translation: str, links: Sequence[Sequence[Link]]) -> Edit | None:
    """Return the edit of a word in a match's translation; None if the alignment is unclear.

    The word must be linked, in both translations, to adjacent words that are linked to nothing else, and the words
    before and behind it must be the same in both: they may depend on it, as an article does.

    Args:
        repair: The repair, with a word.
        source: The match's source.
        line: The line.
        translation: The model's translation of the line.
        links: Links of the match and of the line with its translation, between `parts_of_words`.
    """
    assert repair.word is not None
    sides = [
        _linked(side, target, span, own)
        for side, target, span, own in zip(
            (source, line), (repair.target, translation), repair.word, links, strict=True
        )
    ]
    if any(side is None for side in sides):
        return None
    (old, old_around), (new, new_around) = (side for side in sides if side is not None)
    return (*old, translation[slice(*new)]) if old_around == new_around else None


def _linked(source: str, target: str, span: Span, links: Iterable[Link]) -> tuple[Span, tuple[str, str]] | None:
    """Return the span of the words that a word is linked to, and the words around it."""
    sources, targets = parts_of_words(source), parts_of_words(target)
    own = {number for number, (start, end) in enumerate(sources) if start < span[1] and end > span[0]}
    linked = sorted({right for left, right in links if left in own})
    if not linked or linked[-1] - linked[0] + 1 != len(linked):
        return None
    if any(right in linked and left not in own for left, right in links):
        return None
    first, last = linked[0], linked[-1]
    around = [target[slice(*targets[at])].casefold() if 0 <= at < len(targets) else "" for at in (first - 1, last + 1)]
    return (targets[first][0], targets[last][1]), (around[0], around[1])


def _units(text: str) -> list[_Unit]:
    """Return the words, marks, numbers and placeholders of a text, in order."""
    codes = {match.span() for match in find_placeholders(text)}
    words = term_words(text)
    starts, ends = {word.start for word in words}, {word.end for word in words}
    found = (match.span() for match in NUMBER.finditer(text))
    numbers = {start: (start, end) for start, end in found if start in starts and end in ends}
    units: list[_Unit] = []
    at = 0
    for word in words:
        if word.start < at:
            continue
        span = numbers.get(word.start) if word.text[0].isdigit() else None
        is_code = (word.start, word.end) in codes
        start, at = (word.start, word.end) if is_code or span is None else span
        own = unicodedata.normalize("NFC", text[start:at])
        key = tuple(_RUNS.findall(own)) if span is not None and not is_code else (own,)
        kind = "code" if is_code else "word" if span is None else "number"
        units.append(_Unit(kind, key, text[start:at], start, at))
    return units


def _exact_edits(
    changes: Sequence[tuple[_Unit, _Unit]], source: Sequence[_Unit], target: Sequence[_Unit]
) -> list[Edit] | None:
    """Return the edits of numbers and placeholders; None if one is ambiguous.

    Each must differ everywhere in the same way, and the translation must have it as often as the source.
    """
    in_source, in_target = (Counter((unit.kind, unit.key) for unit in units) for units in (source, target))
    together: dict[tuple[str, tuple[str, ...]], list[tuple[_Unit, _Unit]]] = {}
    for old, new in changes:
        together.setdefault((old.kind, old.key), []).append((old, new))
    edits = []
    for key, some in together.items():
        is_everywhere = in_source[key] == len(some) == in_target[key]
        if not is_everywhere or len({new.text for _, new in some}) > 1 or len({old.text for old, _ in some}) > 1:
            return None
        old, new = some[0]
        for unit in target:
            if (unit.kind, unit.key) == key:
                is_number = unit.kind == "number"
                if is_number and _RUNS.sub("0", old.text) != _RUNS.sub("0", new.text):
                    return None  # such as 100 and 1,000, which the translation may write in another way
                written = _in_form(new.text, unit.text) if is_number else new.text
                edits.append((unit.start, unit.end, written))
    return edits


def _in_form(number: str, written: str) -> str:
    """Return a number with the signs between its digits that another one has: `2,5` for `2.5` and `1,5`."""
    runs = iter(_RUNS.findall(number))
    return _RUNS.sub(lambda _: next(runs), written)


def _fit(
    old: _Unit, new: _Unit, source: Sequence[_Unit], target: str, translated: Sequence[_Unit], language: str
) -> bool:
    """Return whether a number may replace another, for all that depends on it: words, endings, the order of a date."""
    there = [unit for unit in translated if (unit.kind, unit.key) == (old.kind, old.key)]
    if any(_SUFFIX.match(target, unit.end) for unit in there):
        return False
    written = {_RUNS.sub("0", unit.text) for unit in (old, *there)}
    is_date = any(sign in form for form in written for sign in "/-") or (len(old.key) > 2 and len(written) > 1)
    if is_date and len(set(old.key)) < len(set(zip(old.key, new.key, strict=True))):
        return False  # 1/1/2024: whether the day is written first is not known
    is_counted = _has_word_behind(old, source) or any(_has_word_behind(unit, translated) for unit in there)
    return not is_counted or _forms(old, language) == _forms(new, language) is not None


def _has_word_behind(number: _Unit, units: Sequence[_Unit]) -> bool:
    """Return whether a word follows a number, directly or within markup, quotes or brackets."""
    behind = (unit.text[0] for unit in units if unit.start >= number.end and unit.kind != "code")
    following = next((sign for sign in behind if unicodedata.category(sign) not in ("Pi", "Ps")), "")
    return following.isalpha()


def _forms(number: _Unit, language: str) -> list[int] | None:
    """Return the plural forms of a number however it is read; None if it is too long."""
    whole = "".join(number.key)
    if len(whole) > _MOST_DIGITS:
        return None
    is_grouped = all(len(run) == GROUP for run in number.key[1:])
    return [_plural_form(language)(int(text)) for text in (*number.key, *([whole] if is_grouped else []))]


@cache
def _plural_form(language: str) -> Callable[[int], int]:
    rule = plural_forms(language) or plural_forms(_STRICT)
    return c2py(rule.partition("plural=")[2].rstrip(";"))


def _end_marks(text: str) -> str:
    match = _END_MARKS.search(text)
    return match[0] if match else ""


def _plain(marks: str) -> str:
    return marks.strip().translate(_ALIKE)
