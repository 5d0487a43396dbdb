"""Checks of single pairs, some against what is usual in their corpus: the affected pairs and their defects."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.config import DataConfig
from clearhead.data.doctor.characters import (
    BRACKET,
    CONTROL,
    DIGIT,
    ENTITY,
    GARBLED,
    INVISIBLE,
    LETTER,
    MARK,
    character_table,
)
from clearhead.data.doctor.code_points import SEEN_CHARACTERS, TextBatch, Texts
from clearhead.data.doctor.findings import KINDS
from clearhead.data.doctor.identification import SideLanguages
from clearhead.data.doctor.language_checks import OF_OTHER_SIDE, SIDES, Languages, Profiles, Verdict, language_verdicts
from clearhead.data.doctor.meaning import Meaning
from clearhead.data.doctor.mojibake import garbled
from clearhead.text.line_statistics import RATIO_FLOOR
from clearhead.text.number_differences import missing_numbers
from clearhead.text.placeholders import words_alone
from clearhead.text.quality_flags import missing_placeholders

USUAL_SCRIPT = 0.02
"""Least share of a side's letters for a script to count as usual on that side."""
FEWEST_LETTERS = 4
"""Least number of letters in unusual scripts for a text to be reported."""
UNUSUAL_RATIO = math.log(3)
"""Least deviation of the log length ratio of a pair from the usual one, to be reported."""
MOST_CHARACTERS = DataConfig().max_characters

_DIGITS = re.compile(r"\d+")
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_OPENING, _CLOSING = "([{（［｛", ")]}）］｝"
_ENUMERATION = re.compile(r"(?:^|\s)\w{1,3}\)|[:;=]-?[()\[\]]")
"""List markers such as `a)`, and emoticons, whose brackets are unbalanced."""
_MOST_NAMED = 5
_MOST_RESOLVED = 3
"""Most times that character references are resolved: `&amp;lt;` has been written so twice."""
_TO_SPACE = str.maketrans(dict.fromkeys("\t\n\v\f\r\x85\u2028\u2029", " "))
"""Tabs and line ends as spaces: in the text of a page they are the same, and most files of pairs cannot keep them."""


class Found(NamedTuple):
    """The affected pairs of a batch."""

    places: NDArray[np.int64]
    detail: Callable[[int], str]
    """Returns the description of the defect of the pair at an index."""


@dataclass(frozen=True)
class Usual:
    """Typical properties of a corpus, learned from its beginning."""

    ratio: float
    """Median log ratio of target to source length, with `RATIO_FLOOR` characters added to both."""
    scripts: tuple[frozenset[str], frozenset[str]]
    """For source and target, the scripts that are usual; none if it has no letters, and then any may be."""
    languages: Languages
    meaning: Meaning | str
    """Similarity of unrelated texts, or the reason why meanings are not compared."""

    @classmethod
    def learn(cls, batches: Sequence[TextBatch], *, with_meaning: bool = False) -> Usual:
        """Learn the typical properties from the first batches of a corpus."""
        filled = [ratio for batch in batches if (ratio := _ratios(batch)[~batch.blank]).size]
        sources, targets = [batch.source for batch in batches], [batch.target for batch in batches]
        identified = SideLanguages.learn(sources, targets)
        meaning: Meaning | str = "it is only with --meaning"
        if with_meaning:
            known = identified if isinstance(identified, str) else identified.languages
            meaning = Meaning.learn(sources, targets, known)
        return cls(
            float(np.median(np.concatenate(filled))) if filled else 0.0,
            (_usual_scripts(sources), _usual_scripts(targets)),
            Languages(Profiles.learn(sources, targets), identified),
            meaning,
        )

    def unchecked(self) -> dict[str, str]:
        """Return the findings that are not looked for, with the reason."""
        profiles, identified = self.languages
        reasons = {"no_translation": self.meaning} if isinstance(self.meaning, str) else {}
        if not isinstance(identified, str):
            return reasons
        reasons["other_language"] = identified
        if profiles is None:
            reasons |= dict.fromkeys(
                ("swapped", "wrong_language"), f"there are too few pairs to learn from, and {identified}"
            )
        return reasons


Check = Callable[[TextBatch, Usual], Found]


def _of_pairs(kind: int, defect: Callable[[str, str], str]) -> Check:
    """Return a check of the pairs with a character of a kind.

    Args:
        kind: Bit flag of the kind.
        defect: Returns the description of the defect of a source and a target; empty if there is none.
    """

    def check(batch: TextBatch, usual: Usual) -> Found:
        def detail(place: int) -> str:
            return defect(*map(_seen, batch.pair(place)))

        return Found(_where(_candidates(batch, kind), detail), detail)

    return check


def _language_checks(batch: TextBatch, usual: Usual) -> Iterator[tuple[str, Found]]:
    verdicts = language_verdicts(batch, usual.languages, _foreign(batch, usual))

    def detail(place: int) -> str:
        return " and ".join(
            name if language == OF_OTHER_SIDE else f"{name} is in another language ({language})"
            for name, language in zip(SIDES, verdicts[place], strict=True)
            if language
        )

    for kind in LANGUAGE_KINDS:
        places = sorted(place for place, verdict in verdicts.items() if kind in _language_kinds(verdict))
        yield kind, Found(np.array(places, dtype=np.int64), detail)


def _language_kinds(verdict: Verdict) -> Iterator[str]:
    of_other = verdict.count(OF_OTHER_SIDE)
    if of_other:
        yield "swapped" if of_other == 2 else "wrong_language"
    if any(language not in ("", OF_OTHER_SIDE) for language in verdict):
        yield "other_language"


def _wrong_script(batch: TextBatch, usual: Usual) -> Found:
    source, target = _foreign(batch, usual)

    def detail(place: int) -> str:
        return "; ".join(
            f"the {name}: {_scripts(texts, place)}"
            for name, texts, is_foreign in (("source", batch.source, source), ("target", batch.target, target))
            if is_foreign[place]
        )

    return Found(np.flatnonzero(source | target), detail)


def _empty(batch: TextBatch, usual: Usual) -> Found:
    source, target = batch.source.words == 0, batch.target.words == 0

    def detail(place: int) -> str:
        return "both sides" if source[place] and target[place] else "the source" if source[place] else "the target"

    return Found(np.flatnonzero(batch.blank), detail)


def _placeholders(source: str, target: str) -> str:
    def missing(source: str, text: str) -> list[str]:
        """Emphasis is left out: another language may stress other words, and mark foreign ones."""
        return [placeholder for placeholder in missing_placeholders(source, text) if placeholder.strip("*")]

    return _differences(missing, source, target, " ")


def _identical(batch: TextBatch, usual: Usual) -> Found:
    alike = (batch.source.lengths == batch.target.lengths) & ((batch.source.has & LETTER) != 0)

    def words(place: int) -> str:
        source, target = batch.pair(place)
        left = words_alone(_seen(source)) if source == target else ""
        return " ".join(left.split()) if any(map(str.isalpha, left)) else ""

    return Found(_where(np.flatnonzero(alike), words), lambda place: "")


def _length_ratio(batch: TextBatch, usual: Usual) -> Found:
    difference = _ratios(batch) - usual.ratio

    def detail(place: int) -> str:
        return f"{batch.source.lengths[place]:,} and {batch.target.lengths[place]:,} characters"

    return Found(np.flatnonzero((np.abs(difference) > UNUSUAL_RATIO) & ~batch.blank), detail)


def _too_long(batch: TextBatch, usual: Usual) -> Found:
    longest = np.maximum(batch.source.lengths, batch.target.lengths)
    return Found(np.flatnonzero(longest > MOST_CHARACTERS), lambda place: f"{longest[place]:,} characters")


def _characters(kind: int) -> Check:
    return lambda batch, usual: Found(_candidates(batch, kind), lambda place: _named(batch, place, kind))


def _no_translation(batch: TextBatch, usual: Usual) -> Found:
    meaning = usual.meaning
    if isinstance(meaning, str):
        return Found(np.empty(0, dtype=np.int64), str)
    similarities = meaning.similarities(batch)

    def detail(place: int) -> str:
        return f"similarity {similarities[place]:.2f}; of unrelated texts up to {meaning.threshold:.2f}"

    has_letters = ((batch.source.has & batch.target.has) & LETTER) != 0
    return Found(np.flatnonzero((similarities < meaning.threshold) & has_letters), detail)


def _entities(source: str, target: str) -> str:
    entities = _ENTITY.findall(source) + _ENTITY.findall(target)
    return " ".join(_some(entity for entity in entities if unescape(entity) != entity))


def without_entities(text: str) -> str:
    """Return a text with the characters that its character references stand for; a space for a tab or line end.

    >>> without_entities("Fish &amp; Chips &#39;&unknown;&#39; &amp;lt;&#10;x")
    "Fish & Chips '&unknown;' < x"
    """
    for _ in range(_MOST_RESOLVED):
        before, text = text, _ENTITY.sub(lambda match: unescape(match[0]).translate(_TO_SPACE), text)
        if text == before:
            break
    return text


def _numbers(batch: TextBatch, usual: Usual) -> Found:
    def detail(place: int) -> str:
        source, target = map(_seen, batch.pair(place))
        is_alike = sorted(_DIGITS.findall(source)) == sorted(_DIGITS.findall(target))
        return "" if is_alike else _differences(missing_numbers, source, target, ", ")

    # A side without any number may have it in words.
    both = ((batch.source.has & batch.target.has) & DIGIT) != 0
    return Found(_where(np.flatnonzero(both & ~batch.blank), detail), detail)


def _brackets(source: str, target: str) -> str:
    opened, opened_in_target = _open_brackets(source), _open_brackets(target)
    if (opened == 0) == (opened_in_target == 0):
        return ""
    name, count = ("source", opened) if opened else ("target", opened_in_target)
    return f"the {name} has {abs(count)} more {'opened' if count > 0 else 'closed'}"


CHECKS: dict[str, Check] = {
    "mojibake": _of_pairs(GARBLED, lambda source, target: garbled(source) or garbled(target)),
    "wrong_script": _wrong_script,
    "empty": _empty,
    "placeholders": _of_pairs(MARK, _placeholders),
    "identical": _identical,
    "length_ratio": _length_ratio,
    "too_long": _too_long,
    "control_characters": _characters(CONTROL),
    "invisible": _characters(INVISIBLE),
    "entities": _of_pairs(ENTITY, _entities),
    "numbers": _numbers,
    "brackets": _of_pairs(BRACKET, _brackets),
    "no_translation": _no_translation,
}
"""Checks that need only one pair and the typical properties of its corpus, by finding."""

LANGUAGE_KINDS = ("swapped", "wrong_language", "other_language")
"""Findings that are made together."""

ONE_LANGUAGE_KINDS = (*LANGUAGE_KINDS, "wrong_script")
"""Findings that say nothing about text of several languages."""


def found_in(batch: TextBatch, usual: Usual, kinds: Collection[str] = KINDS) -> Iterator[tuple[str, Found]]:
    """Yield the findings among `CHECKS` and `LANGUAGE_KINDS`, with the pairs that have them.

    Args:
        batch: The pairs.
        usual: What is usual in their corpus.
        kinds: The only findings that are looked for.
    """
    if any(name in kinds for name in LANGUAGE_KINDS):
        yield from _language_checks(batch, usual)
    for name, check in CHECKS.items():
        if name in kinds:
            yield name, check(batch, usual)


def _ratios(batch: TextBatch) -> NDArray[np.float64]:
    return np.log((batch.target.lengths + RATIO_FLOOR) / (batch.source.lengths + RATIO_FLOOR))


def _usual_scripts(side: Sequence[Texts]) -> frozenset[str]:
    counts = sum((texts.letters_by_script() for texts in side), Counter[str]())
    least = USUAL_SCRIPT * counts.total()
    return frozenset(script for script, count in counts.items() if count >= least)


def _foreign(batch: TextBatch, usual: Usual) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which texts have most of their letters in unusual scripts, for source and target."""
    are_foreign = []
    for texts, scripts in zip((batch.source, batch.target), usual.scripts, strict=True):
        names = character_table().script_names
        is_unusual = np.array([bool(scripts and name) and name not in scripts for name in names])
        foreign = texts.sums(is_unusual[texts.scripts])
        are_foreign.append((foreign >= FEWEST_LETTERS) & (2 * foreign > texts.sums(texts.scripts != 0)))
    return are_foreign[0], are_foreign[1]


def _scripts(texts: Texts, place: int) -> str:
    names, part = character_table().script_names, slice(texts.starts[place], texts.ends[place])
    scripts, codes = texts.scripts[part], texts.codes[part]
    letters = {names[script]: codes[scripts == script] for script in np.unique(scripts).tolist() if script}
    by_number = sorted(((own.size, int(own.min()), name) for name, own in letters.items()), reverse=True)
    return ", ".join(f"{count} of {name}" for count, _, name in by_number)


def _candidates(batch: TextBatch, kind: int) -> NDArray[np.int64]:
    """Return the indices of pairs with a character of a kind."""
    return np.flatnonzero((batch.source.has | batch.target.has) & kind)


def _where(places: NDArray[np.int64], detail: Callable[[int], str]) -> NDArray[np.int64]:
    """Return the indices whose description is not empty."""
    return np.array([place for place in places.tolist() if detail(place)], dtype=np.int64)


def _seen(text: str) -> str:
    return text[:SEEN_CHARACTERS]


def _differences(missing: Callable[[str, str], list[str]], source: str, target: str, between: str) -> str:
    """Return what each side lacks of the other."""
    lacks = {"target": _some(missing(source, target)), "source": _some(missing(target, source))}
    return "; ".join(f"the {name} lacks {between.join(lacking)}" for name, lacking in lacks.items() if lacking)


def _named(batch: TextBatch, place: int, kind: int) -> str:
    """Return the characters of a kind in both sides, as code points."""
    names = []
    for texts in (batch.source, batch.target):
        part = slice(texts.starts[place], texts.ends[place])
        names += [f"U+{code:04X}" for code in texts.codes[part][(texts.kinds[part] & kind) != 0].tolist()]
    return " ".join(_some(names))


def _some(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))[:_MOST_NAMED]


def _open_brackets(text: str) -> int:
    """Return opening minus closing brackets; 0 if they balance without list markers and emoticons."""
    with_all, without = (
        sum(map(part.count, _OPENING)) - sum(map(part.count, _CLOSING)) for part in (text, _ENUMERATION.sub(" ", text))
    )
    return with_all if without else 0
