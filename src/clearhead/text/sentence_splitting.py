"""Where the sentences of a line end, and how their translations become a line again.

How sentences end, and which abbreviations do not end them, is told for each language by Wikimedia's `sentencex`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import sentencex

from clearhead.text.scripts import count_scripts, script_of

__all__ = ["CutLine", "cut_line", "join_sentences", "split_sentences"]

_UNSPACED = {"HAN", "HIRAGANA", "KATAKANA", "BOPOMOFO"}
"""Scripts in which one sentence follows the other without a space."""

_SPACE = re.compile(r"[^\S\r\n]")
_INITIAL = re.compile(r"(?<!\w)[^\W\d_]\.\s*\Z")
_ORDINAL = re.compile(r"(?<!\w)\d{1,2}\.\s*\Z")
_DASH = re.compile(r"\s*[-–—]")
_SAID = re.compile(r"(?<=[」』])(?:と|って)")
"""What goes on behind a quotation in Japanese."""
_BEGINNING = re.compile(r"[.!?…][\"'”’»)\]]*\s+[\"'“‘«(\[]*[^\W\d_]")
"""What may begin a sentence in a text of small letters."""

_GREEK_QUESTION_MARK = "\u037e"
"""To Unicode the same as a semicolon, which is what most keyboards write."""

_LANGUAGES = {"CYRILLIC": "ru", "GREEK": "el"}
"""Script to the language whose rules are taken where no language is known: abbreviations, and the Greek question mark.
The rules for English, which are taken otherwise, know the marks that end sentences in all scripts."""


@dataclass(frozen=True, slots=True)
class CutLine:
    """The sentences of a line, and what stands between them."""

    sentences: tuple[str, ...]
    """At least one; where there are several, none begins or ends with white space."""
    gaps: tuple[str, ...]
    """The white space between each sentence and the next; empty where there is none."""


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """Split a text into its sentences, each with the white space that follows it; together they are the text.

    Two sentences together do less harm than two halves, so none ends where that is unlikely: behind what has no
    letters, such as the number of a list, or behind a single letter; within a word, as in `Node.js`; before a dash, the
    `と` behind a Japanese quotation or, in a text that has capitals of the same script, a small letter; nor behind a
    number of one or two digits, unless the language is known to be English, for many languages write ordinals so.

    Args:
        text: Any text; one that holds half of a surrogate pair is one sentence.
        language: Language of the text, such as `de`, `de-AT` or `deu`; if None, what its script makes likely.

    >>> split_sentences("Am 3. Mai kam Dr. Roth. Er blieb.", "de")
    ['Am 3. Mai kam Dr. Roth. ', 'Er blieb.']
    >>> split_sentences("1. Open it. 2. Close it. See the 3. Button.")
    ['1. Open it. ', '2. Close it. ', 'See the 3. Button.']
    >>> split_sentences("er kam z. b. am montag. sie ging.", "de")
    ['er kam z. b. am montag. ', 'sie ging.']
    """
    rules = _code(language or _likely_language(text))
    # sentencex panics at a wide space behind a single letter, and knows one of two equal question marks; only lengths
    # count here.
    plain = _SPACE.sub(" ", text).replace(_GREEK_QUESTION_MARK, ";")
    try:
        found = sentencex.segment(rules, _BEGINNING.sub(_capital, plain) if text.islower() else plain)
    except UnicodeEncodeError:
        return [text]
    capitals = {script_of(letter) for letter in set(text) if letter.isupper()}
    sentences: list[str] = []
    is_english = language is not None and rules == "en"
    start = at = 0
    letter, ends = "", False  # the last letter of the sentence that begins at `start`, and whether it may end here
    for size in map(len, found):
        piece = text[at : at + size]
        first = _first_letter(piece)
        is_apart = text[at - 1].isspace() or _is_unspaced(letter, first)
        goes_on = piece.isspace() or _DASH.match(piece) or _SAID.match(text, at) or _goes_on(letter, first, capitals)
        if ends and letter and is_apart and not goes_on:
            sentences.append(text[start:at])
            start, letter = at, ""
        at += size
        letter = _first_letter(reversed(piece)) or letter
        ends = not _INITIAL.search(piece) and (is_english or not _ORDINAL.search(piece))
    if letter or not sentences:
        return [*sentences, text[start:]]
    return [*sentences[:-1], sentences[-1] + text[start:]]


def cut_line(text: str, language: str | None = None) -> CutLine:
    """Cut a line into its sentences and the white space between them; a line of one sentence stays as it is."""
    pieces = split_sentences(text, language)
    if len(pieces) == 1:
        return CutLine((text,), ())
    gaps = [
        piece[len(piece.rstrip()) :] + after[: len(after) - len(after.lstrip())] for piece, after in pairwise(pieces)
    ]
    return CutLine(tuple(piece.strip() for piece in pieces), tuple(gaps))


def join_sentences(texts: Sequence[str], gaps: Sequence[str]) -> str:
    """Make a line of the translations of its sentences, with the white space that stood between these.

    The spaces follow the script that is translated into: Chinese and Japanese sentences have none between them, also
    where the source had; others get one where the source had none. Tabs and line ends stay in every script.

    Args:
        texts: A text for each sentence; blank ones are left out.
        gaps: As of `CutLine`.

    >>> join_sentences(["I am a dog.", "You are a cat."], [""])
    'I am a dog. You are a cat.'
    >>> join_sentences(["犬です。", "猫です。"], ["  "])
    '犬です。猫です。'
    """
    line = texts[0]
    for gap, text in zip(gaps, texts[1:], strict=True):
        if not (line and text):
            line += text
            continue
        is_unspaced = _is_unspaced(_first_letter(reversed(line)) or _first_letter(text))
        line += (_drop_spaces(gap) if is_unspaced else gap or " ") + text
    return line


@lru_cache
def _code(language: str) -> str:
    """Return what `sentencex` calls a language: by two letters if there are any, which NLLB's models do not use.

    >>> _code("de-AT"), _code("deu_Latn"), _code("yue")
    ('de', 'de', 'yue')
    """
    code = re.split("[-_]", language.lower())[0]
    if len(code) == 2:
        return code
    from babel.core import get_global  # few need it, and it takes a while

    return str(get_global("language_aliases").get(code, code)).partition("_")[0]


def _likely_language(text: str) -> str:
    if text.isascii():
        return "en"
    scripts = count_scripts([text])
    return _LANGUAGES.get(max(scripts, key=scripts.__getitem__, default=""), "en")


def _capital(beginning: re.Match[str]) -> str:
    """Put the letter that may begin a sentence in the case that the rules look for."""
    before, letter = beginning[0][:-1], beginning[0][-1]
    capital = letter.upper()
    return before + (capital if len(capital) == 1 else letter)


def _goes_on(before: str, first: str, capitals: Container[str | None]) -> bool:
    """Tell whether a letter behind another begins no sentence: a small one, where the text has capitals of its script.

    Args:
        before: The last letter before, empty if there is none.
        first: The letter.
        capitals: The scripts of the capitals in the text.
    """
    if not first.islower() or not (script := script_of(first)) or (before and script_of(before) != script):
        return False
    return script in capitals


def _drop_spaces(gap: str) -> str:
    return "".join(character for character in gap if unicodedata.category(character) != "Zs")


def _first_letter(characters: Iterable[str]) -> str:
    return next(filter(str.isalpha, characters), "")


def _is_unspaced(*letters: str) -> bool:
    return any(letter and script_of(letter) in _UNSPACED for letter in letters)
