"""Split lines into sentences, and join translated sentences into lines; find the list markers before a line.

Language-specific rules for the ends of sentences, and lists of abbreviations, are those of Wikimedia's `sentencex`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import sentencex

from clearhead.text.languages import CHINESE_AND_JAPANESE, count_scripts, script_of, usual_code
from clearhead.text.placeholders import has_words

_OTHER_SPACE = re.compile(r"[^\S\r\n ]")
INITIAL = re.compile(r"(?<!\w)[^\W\d_]\.\s*\Z")
ORDINAL = re.compile(r"(?<!\w)\d{1,2}\.\s*\Z")
_LONGEST_END = 4
"""Characters in which both are found, without the white space: the longest match, and the character before it."""
DASH = re.compile(r"\s*[-–—]")
SAID = re.compile(r"(?<=[」』])(?:と|って)")
"""Particles after a Japanese quotation, which continue its sentence."""
BEGINNING = re.compile(r"[.!?…][\"'”’»)\]]*\s+[\"'“‘«(\[]*[^\W\d_]")
"""A possible beginning of a sentence in a lowercase text."""

_WINDOW = 2_000
"""Characters given to `sentencex` at once: its time grows with the square of the number of quotation marks."""

NEAR = 1_000
"""Characters before a sentence in which a letter is looked for; looking at all would take quadratic time."""

_GREEK_QUESTION_MARK = "\u037e"
"""Canonically equivalent to a semicolon, which is what most keyboards write."""

_LANGUAGES = {"CYRILLIC": "ru", "GREEK": "el"}
"""Language whose rules are used for a script if the language is unknown: abbreviations, and the Greek question mark.
Otherwise the rules for English are used, which know the sentence-ending marks of all scripts."""


_GERMAN_DATE = (
    r"\s+(?:Januar|Jänner|Februar|Feber|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
    r"|Jan|Feb|Mär|Mrz|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez)(?!\w)"
)
"""Pattern of a month behind its day in German, where months have a capital."""
MARKER = re.compile(
    r"\s*(?:(?:[*•‣▪+–—-]|>{1,3}|\(?(?:[A-Za-z]|[ivxIVX]{2,4}|[0-9]{1,3})\)"
    rf"|[0-9]{{1,3}}\.(?!{_GERMAN_DATE}))[ \t\u00a0]+)+(?=\S)"
)
"""Pattern of the markers at the beginning of a line, each with the space behind it."""


class CutLine(NamedTuple):
    """The sentences of a line, and the white space between them."""

    sentences: tuple[str, ...]
    """At least one; if there are several, none begins or ends with white space."""
    gaps: tuple[str, ...]
    """The white space between each sentence and the next; may be empty."""

    @property
    def text(self) -> str:
        """The sentences with the white space between them."""
        rest = zip(self.gaps, self.sentences[1:], strict=True)
        return self.sentences[0] + "".join(gap + sentence for gap, sentence in rest)


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """Split a text into sentences, each with the white space that follows it; concatenated they are the text.

    Joining two sentences does less harm than splitting one, so doubtful ends are ignored: after text without letters,
    such as a list number, or after a single letter; within a word, as in `Node.js`; before a dash; before the `と`
    after a Japanese quotation; and before a small letter, if the text has capitals of the same script. An end after a
    number of one or two digits is ignored unless the language is known to be English, because many languages write
    ordinals so.

    Args:
        text: Any text; one that contains an unpaired surrogate is one sentence.
        language: Language of the text, such as `de`, `de-AT` or `deu`; if None, it is guessed from the script.

    >>> split_sentences("Am 3. Mai kam Dr. Roth. Er blieb.", "de")
    ['Am 3. Mai kam Dr. Roth. ', 'Er blieb.']
    >>> split_sentences("1. Open it. 2. Close it. See the 3. Button.")
    ['1. Open it. ', '2. Close it. ', 'See the 3. Button.']
    >>> split_sentences("er kam z. b. am montag. sie ging.", "de")
    ['er kam z. b. am montag. ', 'sie ging.']
    """
    rules = _code(language or _likely_language(text))
    # sentencex panics at a wide space after a single letter, and knows only one of the two equivalent question marks.
    # Only the lengths of its sentences are used.
    plain = _OTHER_SPACE.sub(" ", text).replace(_GREEK_QUESTION_MARK, ";")
    try:
        sizes = _sizes(rules, BEGINNING.sub(_capital, plain) if text.islower() else plain)
    except UnicodeEncodeError:
        return [text]
    if len(sizes) < 2:
        return [text]
    capitals = {script_of(letter) for letter in set(text) if letter.isupper()}
    sentences: list[str] = []
    is_english = language is not None and rules == "en"
    start = at = 0
    letter, ends = "", False  # the last letter since `start`, and whether a sentence may end here
    for size in sizes:
        piece = text[at : at + size]
        first = _first_letter(piece)
        if (
            ends
            and letter
            and (text[at - 1].isspace() or _is_unspaced(letter, first))
            and not (piece.isspace() or DASH.match(piece) or SAID.match(text, at) or _goes_on(letter, first, capitals))
        ):
            sentences.append(text[start:at])
            start, letter = at, ""
        at += size
        letter = _first_letter(reversed(piece)) or letter
        end = piece.rstrip()[-_LONGEST_END:]
        ends = not INITIAL.search(end) and (is_english or not ORDINAL.search(end))
    if letter or not sentences:
        return [*sentences, text[start:]]
    return [*sentences[:-1], sentences[-1] + text[start:]]


def cut_line(text: str, language: str | None = None) -> CutLine:
    """Split a line into its sentences and the white space between them; a single sentence is not changed."""
    pieces = split_sentences(text, language)
    if len(pieces) == 1:
        return CutLine((text,), ())
    gaps = [
        piece[len(piece.rstrip()) :] + after[: len(after) - len(after.lstrip())] for piece, after in pairwise(pieces)
    ]
    return CutLine(tuple(piece.strip() for piece in pieces), tuple(gaps))


def join_sentences(texts: Sequence[str], gaps: Sequence[str]) -> str:
    """Join the translations of a line's sentences, with the white space of the source line between them.

    The spaces follow the script of the translation. Chinese and Japanese sentences have none between them, even if the
    source had some; other scripts get one if the source had none. Tabs and line ends are kept in every script.

    Args:
        texts: A text for each sentence; blank ones are left out.
        gaps: White space between the source sentences, as in `CutLine`.

    >>> join_sentences(["I am a dog.", "You are a cat."], [""])
    'I am a dog. You are a cat.'
    >>> join_sentences(["犬です。", "猫です。"], ["  "])
    '犬です。猫です。'
    """
    line = texts[0]
    for gap, text in zip(gaps, texts[1:], strict=True):
        line += space_before(text, line, gap) + text
    return line


def space_before(text: str, line: str, gap: str) -> str:
    """Return the white space between the translation of a sentence and those of the sentences before it.

    Args:
        text: The translation; none follows a blank line, or precedes a blank text.
        line: The translation of the line so far.
        gap: White space between the source sentences.
    """
    if not (line and text):
        return ""
    before = _first_letter(reversed(line[-NEAR:]))
    return _drop_spaces(gap) if _is_unspaced(before or _first_letter(text)) else gap or " "


def _sizes(rules: str, text: str) -> list[int]:
    """Return the lengths of the sentences that `sentencex` finds in a text.

    A long text is read in windows. The next one begins at a sentence in the second half of a window, so that the
    sentences around it are whole.
    """
    sizes: list[int] = []
    at = start = 0  # start of the window, and of the sentence that it continues
    while at < len(text):
        end = at + _WINDOW
        for size in map(len, sentencex.segment(rules, text[at:end])):
            at += size
            if at < end or end >= len(text):
                sizes.append(at - start)
                start = at
            if at >= end - _WINDOW // 2 and end < len(text):
                break
    return sizes if start == len(text) else [*sizes, len(text) - start]


@lru_cache
def _code(language: str) -> str:
    """Return the code that `sentencex` uses for a language: two letters if there is such a code, unlike NLLB's codes.

    >>> _code("de-AT"), _code("deu_Latn"), _code("yue")
    ('de', 'de', 'yue')
    """
    code = re.split("[-_]", language.lower())[0]
    if len(code) == 2:
        return code
    return usual_code(code).partition("_")[0]


def _likely_language(text: str) -> str:
    if text.isascii() or _LANGUAGES.keys().isdisjoint(map(script_of, set(text))):
        return "en"
    scripts = count_scripts([text])
    return _LANGUAGES.get(max(scripts, key=scripts.__getitem__, default=""), "en")


def _capital(beginning: re.Match[str]) -> str:
    """Capitalise the letter that may begin a sentence, as the rules expect."""
    before, letter = beginning[0][:-1], beginning[0][-1]
    capital = letter.upper()
    return before + (capital if len(capital) == 1 else letter)


def _goes_on(before: str, first: str, capitals: Container[str | None]) -> bool:
    """Return whether a letter continues a sentence: a small letter, in a text with capitals of its script.

    Args:
        before: The last letter before it; empty if there is none.
        first: The letter.
        capitals: Scripts of the capitals in the text.
    """
    if not first.islower() or not (script := script_of(first)) or (before and script_of(before) != script):
        return False
    return script in capitals


def _drop_spaces(gap: str) -> str:
    return "".join(character for character in gap if unicodedata.category(character) != "Zs")


def _first_letter(characters: Iterable[str]) -> str:
    return next(filter(str.isalpha, characters), "")


def _is_unspaced(*letters: str) -> bool:
    return any(letter and script_of(letter) in CHINESE_AND_JAPANESE for letter in letters)


def list_marker(text: str) -> str:
    """Return the markers at the beginning of a line, with their white space; "" if there are none, or no words behind.

    They are markers of lists, quotations and speakers, the structure of a text: `- `, `* `, `> `, `a) `, `1. `. A model
    that has seen few of them drops or doubles them, so it reads the line without them, and its translation gets them
    back.

    A number with a full stop is a marker only before a word with a capital, or in a script without capitals: before a
    small letter, a digit or a German month it is an ordinal.

    >>> list_marker("- Open it."), list_marker("1. Open it."), list_marker("> - a) Open it.")
    ('- ', '1. ', '> - a) ')
    >>> (
    ...     list_marker("-5 °C"),
    ...     list_marker("12. März 2004"),
    ...     list_marker("3. května"),
    ...     list_marker("a dog"),
    ...     list_marker("- 5"),
    ... )
    ('', '', '', '', '')
    """
    match = MARKER.match(text)
    if match is None or not has_words(text[match.end() :]):
        return ""
    first = text[match.end()]
    is_ordinal = match[0].rstrip().endswith(".") and (first.isdecimal() or first.islower())
    return "" if is_ordinal else match[0]
