"""Lines in the form of the training text, which has `Ein Mann geht`, but seldom `EIN MANN GEHT` or `ein mann   geht`.

A model spells capitals letter by letter and has seen few of them, so it translates them badly. Here a line that differs
from the training text as a whole is brought to its form first: letters get the case in which the vocabulary has their
words, and stray white space goes. What is not rare in the training text is left as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache

from clearhead.config import DecodeConfig
from clearhead.text.line_statistics import LineStatistics, has_stray_space, letter_case
from clearhead.text.placeholders import change_words, words_alone
from clearhead.text.sentence_splitting import CutLine, cut_line
from clearhead.tokenizers import Vocabulary

__all__ = ["Familiar", "Form"]

_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*(?:['’](?:[^\W\d_]|[\u0300-\u036f])+)*")
_SINGLE_WORD = re.compile(r"\W*([^\W\d_]{4,})\W*")

_OTHER_I = ("tr", "tur", "az")
"""How the languages begin in which `i` and `I` are not the same letter, for they have `ı` as well."""

_SPACES = re.compile(r"\s+")

_MOST_WORDS, _LONGEST_WORD = 65_536, 40


@dataclass(frozen=True, slots=True)
class Form:
    """A line as the model reads it."""

    text: str
    """Read whole."""
    cut: CutLine
    """Read sentence by sentence; between them is the white space of the line itself."""
    in_capitals: bool = False
    """The line was in capitals and its text is not, so the translation is to be put in capitals."""


class Familiar:
    """Brings lines to the form of a model's training text.

    Args:
        tokenizer: Its vocabulary says how words are written.
        trained: What the training lines were like; where that is not known, lines stay as they are.
    """

    def __init__(self, tokenizer: Vocabulary, trained: LineStatistics | None) -> None:
        self._tokenizer = tokenizer
        self._unknown_cases = () if trained is None else trained.rare_cases()
        self._drops_stray_space = trained is not None and trained.seldom_has_stray_space()
        self._target_characters = frozenset[str]() if trained is None else trained.known_characters()[1]
        self._usual_case = lru_cache(_MOST_WORDS)(self._usual_case_of)

    def __call__(
        self, text: str, config: DecodeConfig, target_lang: str | None = None, *, keep_case: bool = False
    ) -> Form:
        """Return the form of a line.

        Letters change only in a line that is all in capitals, or all in small letters, where such lines are rare in the
        training text: one of two words or more, or a word that the vocabulary knows whole and does not know in
        capitals; not in placeholders and code (`words_alone`), and not where `i` and `I` may be two letters.

        Args:
            text: The line without its language tag.
            config: Whose source language says where sentences end, and which letters have a case.
            target_lang: Language of the translation, where the model has language tags.
            keep_case: Change white space alone.
        """
        cut = cut_line(text, config.source_lang)
        if not config.familiar or not text.strip():
            return Form(text, cut)
        drops = self._drops_stray_space and has_stray_space(text)
        read = tuple(map(_without_stray_space, cut.sentences)) if drops else cut.sentences
        case = None if keep_case else self._rare_case(text, config.source_lang, target_lang)
        usual = tuple(map(self._in_usual_case, read)) if case else read
        if usual == cut.sentences and not drops:
            return Form(text, cut)
        gaps = [gap and " " for gap in cut.gaps] if drops else cut.gaps
        whole = usual[0] + "".join(gap + sentence for gap, sentence in zip(gaps, usual[1:], strict=True))
        return Form(whole, CutLine(usual, cut.gaps), in_capitals=case == "capitals" and usual != read)

    def _rare_case(self, text: str, source_lang: str | None, target_lang: str | None) -> str | None:
        """Return what all words of a line are written in, if the training text hardly has it."""
        words = words_alone(text)
        case = letter_case(words)
        if case is None and (word := _SINGLE_WORD.fullmatch(words)) and word[1].isupper():
            usual, capitals = (len(self._tokenizer.encode(form)) for form in (self._usual_case(word[1]), word[1]))
            case = "capitals" if usual == 1 and capitals > 2 else None  # one that is known in capitals is a name
        if case not in self._unknown_cases:
            return None
        is_plain = unicodedata.is_normalized("NFC", text) and len(text.lower()) == len(text)
        if not is_plain or _has_other_i(source_lang, text) or _has_other_i(target_lang, self._target_characters):
            return None
        return case

    def _in_usual_case(self, sentence: str) -> str:
        begins = "small letters" in self._unknown_cases  # sentences begin with a capital there
        is_marked_up = sentence.startswith("<")  # and a tag is no beginning

        def usual_case(words: str) -> str:
            nonlocal begins
            usual = _WORD.sub(lambda word: self._usual_case(word.group()), words)
            begun = next(filter(str.isalnum, words), None)
            if begins and begun is not None and begun.isalpha():
                usual = _WORD.sub(lambda word: _capitalised(word.group()), usual, count=1)
            begins = begins and begun is None and is_marked_up
            return usual

        return change_words(sentence, usual_case)

    def _usual_case_of(self, word: str) -> str:
        """Return a word as the vocabulary has it: in the fewest pieces, and of equally many in those learned first.

        Pieces are learned in the order of their frequency, which is nearly always the words' own (not in English beside
        German, where ` Man` of `Mann` comes before ` man`); single letters come first, capitals before the others.
        """
        if len(word) > _LONGEST_WORD:
            return word
        small, capitals = word.lower(), word.upper()
        forms = [form for form in dict.fromkeys((small, _capitalised(small), capitals)) if len(form) == len(word)]
        spelled = {form: self._tokenizer.encode(form) for form in forms}
        return min(forms, key=lambda form: (len(spelled[form]), form == capitals, sum(spelled[form])))


def _without_stray_space(sentence: str) -> str:
    return change_words(sentence.strip(), lambda words: _SPACES.sub(" ", words))


def _capitalised(word: str) -> str:
    first = word[0].title()
    return first + word[1:] if len(first) == 1 else word  # a capital of `ß` is two letters


def _has_other_i(language: str | None, characters: Container[str]) -> bool:
    """Tell whether a text is in a language with two letters i; where none is known, its characters say it."""
    return language.lower().startswith(_OTHER_I) if language else "ı" in characters or "İ" in characters
