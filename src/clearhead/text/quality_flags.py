"""Quality flags: warnings about translations that look wrong, from the source, the translation and training statistics.

A flag is a reason to look, not a proof. Every kind is tuned to be rare on good translations (figures in
docs/translation.md).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple, Self

from clearhead.text.languages import script_of
from clearhead.text.line_statistics import LineStatistics, is_copied, length_ratio, letter_case
from clearhead.text.lines import first_few
from clearhead.text.number_differences import invented_numbers, missing_numbers
from clearhead.text.placeholder_masking import Unit, units_of, without_signs
from clearhead.text.placeholders import (
    LOCALIZED_KINDS,
    STATEMENT_SIGNS,
    TAG,
    find_placeholders,
    has_words,
    is_blank,
    may_have_placeholders,
    pair_role,
    placeholder,
    without_tags,
    words_alone,
)

Severity = Literal["serious", "moderate", "mild"]
"""How much damage a flag points to; `SEVERITIES` has them in this order."""
SEVERITIES: tuple[Severity, ...] = ("serious", "moderate", "mild")


class FlagKind(NamedTuple):
    """A kind of flag."""

    meaning: str
    severity: Severity
    """`serious`: part of the meaning is lost or wrong. `moderate`: it probably is. `mild`: most are good."""


KINDS = {
    "empty": FlagKind(
        "the model's best translation is empty; its next best one is in its place, or else the source", "serious"
    ),
    "repetition": FlagKind("the translation repeats a part of itself many times", "serious"),
    "numbers": FlagKind("a number of the source is missing, or a number is invented", "serious"),
    "placeholders": FlagKind(
        "a placeholder, tag, entity, address or emoji of the source is not in the translation, it has others, or it "
        "has a pair of codes in another order",
        "serious",
    ),
    "too_short": FlagKind("the translation is shorter than its source makes likely", "moderate"),
    "copied": FlagKind("the translation is mostly a copy of its source", "moderate"),
    "too_long": FlagKind("the translation is longer than its source makes likely, or its file allows", "moderate"),
    "unseen_script": FlagKind("the source is in a script that no training source has", "moderate"),
    "longer_than_trained": FlagKind(
        "the source is longer than the model's training lines were, and was translated whole", "mild"
    ),
    "unseen_characters": FlagKind("characters that the model has never seen", "mild"),
    "unusual_case": FlagKind(
        "the source is all in capitals or all in small letters, unlike the training text, and was translated as it is",
        "mild",
    ),
    "repaired": FlagKind("a similar translation of the memory, repaired; check it", "mild"),
    "placed_markup": FlagKind("placeholders or tags restored by word alignment; check their position", "mild"),
}
"""Every kind of flag with its meaning, the most damage first; flags, notices and reports are in this order."""

RATIO_MARGIN = 1.1
"""Factor by which a `length_ratio` must exceed the range of 999 in 1,000 training pairs to be suspicious. Of the 10,000
human translations of Tatoeba's test set it flags two; without a margin it would flag 25. Of translations of captions
cut to a third it finds 92 in 100, and of those duplicated 74; with a margin of 1.2 it finds 79 and 44."""

USUAL_COPIES = 0.01
"""Share of copies among the training pairs from which on copying counts as usual, as in texts of software."""

LONGEST_UNIT = 60
REPEATED = re.compile(rf"(.)\1{{11,}}|(..)\2{{5,}}|(.{{3,{LONGEST_UNIT}}}?)\3{{3,}}", re.DOTALL)
"""A unit four times or more in a row, of twelve characters or more together; `ha ha ha` and `...` are ordinary text."""

REPEATED_A_LITTLE = re.compile(rf"(.)\1{{2,}}|(..)\2{{2,}}|(.{{3,{LONGEST_UNIT}}}?)\3+", re.DOTALL)
"""Repetition in a source, which its translation may repeat too. Doubled letters are spelling."""

MOST_SHOWN = 5
"""Findings listed in a flag."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A warning about a translation."""

    kind: str
    """A key of `KINDS`."""
    detail: str
    """What was found, such as the missing numbers."""


class SeenInTraining(NamedTuple):
    """What a model has seen in training, as far as known."""

    statistics: LineStatistics | None
    source_scripts: frozenset[str]
    source_characters: frozenset[str] | None = None
    target_characters: frozenset[str] | None = None

    @classmethod
    def of(cls, statistics: LineStatistics | None, vocabulary: Callable[[], Iterable[str]]) -> Self:
        """Build from training statistics, or from the vocabulary without them.

        Args:
            statistics: Statistics of the training lines; None for a model that was not trained by clearhead.
            vocabulary: Returns the pieces of the vocabulary; used for the scripts if there are no statistics.
        """
        if statistics is None:
            return cls(None, _scripts(character for piece in vocabulary() for character in piece))
        source, target = statistics.known_characters()
        return cls(statistics, _scripts(source), source, target)


def find_flags(
    source: str,
    text: str,
    *,
    tokens: int,
    sentences: int,
    seen: SeenInTraining,
    masked: str | None = None,
    in_place: str = "",
) -> tuple[Flag, ...]:
    """Return the warnings about a translation, each kind at most once, in the order of `KINDS`.

    Args:
        source: The text translated as a unit: a line, or a sentence of a split line; without a language tag.
        text: Its translation.
        tokens: Number of tokens of the source, counting its language tag and the end token.
        sentences: Number of sentences of the source.
        seen: What the model has seen in training.
        masked: The source as the model reads it, with signs in place of placeholders, if it has any.
        in_place: What the text is, if the model's best translation is empty.
    """
    details: dict[str, str | None] = {
        "empty": in_place or ("the model wrote nothing" if is_blank(text) else None),
        **_length_flags(source, text, tokens, sentences, seen.statistics),
        "unusual_case": _unusual_case(source, seen.statistics),
        **_character_flags(source, text, source if masked is None else without_signs(masked), seen),
        **{flag.kind: flag.detail for flag in flags_of_text(source, text, seen.statistics)},
    }
    return tuple(Flag(kind, detail) for kind in KINDS if (detail := details.get(kind)))


def merge_flags(groups: Sequence[Sequence[Flag]]) -> tuple[Flag, ...]:
    """Merge the flags of a line's sentences: each kind once, with all details."""
    details: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for flag in (flag for group in groups for flag in group):
        details[flag.kind].append(flag.detail)
    return tuple(Flag(kind, "; ".join(dict.fromkeys(some))) for kind, some in details.items() if some)


def repeated_unit(text: str) -> tuple[str, int]:
    """Return the first unit repeated four times or more in a row, and the number of repeats.

    A unit has 60 characters at most, and its repeats together at least 12.

    >>> repeated_unit("a man and a man and a man and a man and a man")
    ('a man and ', 4)
    >>> repeated_unit("ha ha ha ha!")
    ('', 0)
    """
    match = REPEATED.search(text) if _may_repeat(text) else None
    if match is None:
        return "", 0
    return match[match.lastindex or 0], _times(match)


def missing_placeholders(source: str, text: str) -> list[str]:
    """Return the placeholders, tags and entities of a source that its translation lacks or has less often.

    Both codes of a pair are returned if the closing one precedes the opening one, or if they are no longer around the
    `{% else %}` between them. Attributes of tags may be translated, and spaces within braces are ignored. Of an ICU
    message with branches, everything but its words must be present, in order; otherwise the beginning of its syntax is
    returned.

    >>> missing_placeholders("%s hat <b>{count}</b> Dateien &amp; 100 % Zeit", "%s has {count} files & 100 % time")
    ['<b>', '</b>', '&amp;']
    """
    missing = _absent_placeholders(source, text)
    torn = (pair for pair in (_pairs(source) - _pairs(text)).elements() if not set(missing).intersection(pair))
    return [*missing, *chain.from_iterable(torn)]


def _absent_placeholders(source: str, text: str) -> list[str]:
    if not may_have_placeholders(source):
        return []
    from clearhead.text.icu_messages import message_syntax

    if (syntax := message_syntax(source)) and syntax != message_syntax(text):
        return [syntax[0]]
    return list((Counter(placeholders_of(source)) - Counter(placeholders_of(text))).elements())


def _placeholder_changes(source: str, text: str) -> str:
    """Return the codes that a translation lacks, those not in the source, and those that docutils would not find.

    Added emphasis is allowed.
    """
    missing, added = _localized_changes(source, text)
    missing = [*missing_placeholders(source, text), *missing]
    added = [code for code in (*_absent_placeholders(text, source), *added) if code.strip("*")]
    is_rst = any(sign in source for sign in (":`", "``", "`_")) and not _beside_words(source)
    beside = _beside_words(text) if is_rst else []
    told = {"": missing, "not in the source: ": added, "beside a letter: ": beside}
    return "; ".join(what + " ".join(some[:MOST_SHOWN]) for what, some in told.items() if some)


def _localized_changes(source: str, text: str) -> tuple[list[str], list[str]]:
    """Return the codes of `LOCALIZED_KINDS` that a translation lacks, and what it has more."""
    missing: list[str] = []
    added: list[str] = []
    if not any(sign in source for sign in "+$_&|"):
        return missing, added
    read, written = (placeholder().sub("\0", side) for side in (source, text))
    for kind in LOCALIZED_KINDS:
        own = list(kind.in_source.finditer(read))
        left = Counter(kind.in_translation.findall(written)) if own else Counter[str]()
        for localized in own:
            if left[localized[1]]:
                left[localized[1]] -= 1
            else:
                missing.append(localized[0])
        added += left.elements() if kind.is_exact else ()
    return missing, added


def _beside_words(text: str) -> list[str]:
    """Return the marks of reStructuredText that a letter or digit is beside, where docutils does not see them."""
    codes = []
    for match in find_placeholders(text) if "`" in text else ():
        code, before, behind = (
            match[0],
            text[max(0, match.start() - 1) : match.start()],
            text[match.end() : match.end() + 1],
        )
        begins, ends = code[0] in ":`", pair_role(code) != ("`", False) and code.endswith(("`", "_"))
        if "`" in code and ((begins and before.isalnum()) or (ends and behind.isalnum())):
            codes.append(code.strip())
    return codes


def _length_flags(
    source: str, text: str, tokens: int, sentences: int, statistics: LineStatistics | None
) -> Mapping[str, str | None]:
    if statistics is None:
        return {}
    lengths = f"{len(text):,} characters for {len(source):,}"
    too_much = None
    if not statistics.covers(sentences, tokens):
        too_much = f"{tokens:,} tokens, {sentences} sentence{'s' * (sentences > 1)}; of the training lines {statistics}"
    ratio = length_ratio(source, text)
    return {
        "longer_than_trained": too_much,
        "too_short": lengths if ratio * RATIO_MARGIN < statistics.least_ratio else None,
        "too_long": lengths if ratio > statistics.most_ratio * RATIO_MARGIN else None,
    }


def _repetition(source: str, text: str) -> str | None:
    unit, times = repeated_unit(text)
    # The source may have laughter, rows of dots or zeros, and in Chinese twelve characters of them are many.
    if not times or times <= 2 * max(map(_times, REPEATED_A_LITTLE.finditer(source)), default=0):
        return None
    return f"{unit.strip() or unit!r} {times} times"


def _times(match: re.Match[str]) -> int:
    return len(match[0]) // len(match[match.lastindex or 0])


def _may_repeat(text: str) -> bool:
    """Return whether a text has a unit twice in a row; a fast check of every fifth character, which most texts fail.

    Every match of `REPEATED` has six consecutive characters or more at which a unit is repeated.
    """
    for at in range(0, len(text), 5):
        start, end = text[at : at + 3], at + LONGEST_UNIT + 3
        again = text.find(start, at + 1, end)
        while again >= 0:
            if text.startswith(text[at:again], again):
                return True
            again = text.find(start, again + 1, end)
    return False


def _copy(source: str, text: str, statistics: LineStatistics | None) -> str | None:
    if statistics is not None and statistics.copies >= USUAL_COPIES * statistics.lines:
        return None
    if not is_copied(source, text):
        return None
    words = words_alone(source)  # addresses, code and figures are the same in every language
    is_copy = has_words(source) and is_copied(words, words_alone(text))
    return "most of the source" if is_copy else None


def _unusual_case(source: str, statistics: LineStatistics | None) -> str | None:
    words = words_alone(source.strip())
    case = letter_case(words)
    if case == "small letters" and words.startswith(" "):  # `{name} ist da` does not begin with a word
        return None
    return case if statistics is not None and case in statistics.rare_cases() else None


def _character_flags(source: str, text: str, read: str, seen: SeenInTraining) -> Mapping[str, str | None]:
    known = seen.source_characters
    letters = set(read) - (known or frozenset())
    if letters and "<" in read:
        letters &= set(without_tags(read))
    if not letters and seen.target_characters is not None and set(text) <= seen.target_characters:  # almost always
        return {}
    scripts = _scripts(letters) - seen.source_scripts
    odd = [] if known is None else sorted(letter for letter in letters if script_of(letter) not in scripts)
    written = [] if seen.target_characters is None else sorted(set(text) - seen.target_characters - set(source))
    details = [_shown(odd)] * bool(odd) + [f"in the translation {_shown(written)}"] * bool(written)
    return {"unseen_script": ", ".join(sorted(scripts)), "unseen_characters": ", ".join(details)}


def _scripts(characters: Iterable[str]) -> frozenset[str]:
    return frozenset(script for character in set(characters) if (script := script_of(character)))


def _shown(characters: Sequence[str]) -> str:
    """Return a few characters, each with its code point: many are invisible."""
    named = [(f"{one} " if unicodedata.category(one)[0] in "LNPS" else "") + f"U+{ord(one):04X}" for one in characters]
    return first_few(named, MOST_SHOWN)


def _numbers_detail(missing: Sequence[str], invented: Sequence[str]) -> str:
    details = [", ".join(missing[:MOST_SHOWN])] if missing else []
    if invented:
        details.append(f"not in the source: {', '.join(invented[:MOST_SHOWN])}")
    return "; ".join(details)


def placeholders_of(text: str) -> Iterator[str]:
    """Yield the placeholders of a text, tags without their attributes."""
    for match in find_placeholders(text):
        yield _compared(match[0])


def placeholders_kept(source: str, text: str) -> dict[str, bool]:
    """Return the placeholders of a source as written there, and whether a translation has each as often.

    >>> placeholders_kept("%s of <b>%s</b>", "<b>%s</b>")
    {'%s': False, '<b>': True, '</b>': True}
    """
    missing = Counter(placeholders_of(source)) - Counter(placeholders_of(text))
    return {match[0]: _compared(match[0]) not in missing for match in find_placeholders(source)}


def flags_of_text(source: str, text: str, statistics: LineStatistics | None = None) -> list[Flag]:
    """Return the flags of a translation that need only the two texts, such as of one written by a person.

    Args:
        source: The source.
        text: Its translation.
        statistics: Statistics of training lines; without them copies count as unusual.

    >>> flags_of_text("%d of 40 files", "%d Dateien")
    [Flag(kind='numbers', detail='40')]
    """
    details = {
        "repetition": _repetition(source, text),
        "numbers": _numbers_detail(missing_numbers(source, text), invented_numbers(source, text)),
        "placeholders": _placeholder_changes(source, text),
        "copied": _copy(source, text, statistics),
    }
    return [Flag(kind, detail) for kind, detail in details.items() if detail]


def _compared(placeholder: str) -> str:
    """Return a placeholder as it is compared: a tag without its attributes, anything else without spaces."""
    tag = TAG.fullmatch(placeholder)
    return placeholder.replace(" ", "") if tag is None else f"<{tag[1]}{tag[2]}>"


def _pairs(text: str) -> Counter[tuple[str, ...]]:
    """Return the pairs of codes in a text; a template statement alone in one, as `{% else %}`, counts with it."""
    pairs: Counter[tuple[str, ...]] = Counter()
    around: list[Unit] = []
    for unit in units_of(text) if any(sign in text for sign in "<{_[`") else ():
        while around and around[-1].starts[1] < unit.starts[0]:
            around.pop()
        texts = tuple(map(_compared, unit.texts))
        if len(texts) == 2 and "*" not in texts[0]:
            pairs[texts] += 1
            if texts[0].startswith(STATEMENT_SIGNS):
                around.append(unit)
        elif around and texts[0].startswith(STATEMENT_SIGNS):
            pairs[*texts, *map(_compared, around[-1].texts)] += 1
    return pairs
