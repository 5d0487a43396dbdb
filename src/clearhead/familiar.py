"""Lines in the form of the training text, which has `Ein Mann geht`, but seldom `EIN MANN GEHT` or `ein mann   geht`.

A model spells capitals letter by letter and has seen few of them, so it translates them badly. Here a line that differs
from the training text as a whole is brought to its form first: letters get the case in which the vocabulary has their
words, and stray spaces go. What is not rare in the training text is left as it is.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from clearhead.config import DecodeConfig
from clearhead.line_statistics import LineStatistics, has_stray_space, letter_case
from clearhead.sentences import cut_line, join_sentences
from clearhead.tokenizer import Tokenizer

__all__ = ["Familiar", "Form"]

_RARE = 0.01
"""What less than this share of the training lines is like, a model does not know well."""

_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*(?:['’](?:[^\W\d_]|[\u0300-\u036f])+)*")
_CODE = re.compile(r"[%{}<>&$\\_@#=|/`]|\w\.\w")
"""Signs of text that case matters in: placeholders, markup, addresses, names of files."""

_OTHER_I = {"tr", "az"}
"""Languages in which `i` and `I` are not the same letter."""

_MOST_WORDS, _LONGEST_WORD = 65_536, 40


@dataclass(frozen=True, slots=True)
class Form:
    """A line as the model reads it."""

    text: str
    in_capitals: bool = False
    """The line was in capitals and its text is not, so the translation is to be put in capitals."""


class Familiar:
    """Brings lines to the form of a model's training text.

    Args:
        tokenizer: Its vocabulary says how words are written.
        trained: What the training lines were like; where that is not known, lines stay as they are.
    """

    def __init__(self, tokenizer: Tokenizer, trained: LineStatistics | None) -> None:
        self._tokenizer = tokenizer
        self._unknown_cases = () if trained is None else trained.rare_cases(_RARE)
        self._drops_stray_spaces = trained is not None and trained.seldom_has_stray_space(_RARE)
        self._usual_case = lru_cache(_MOST_WORDS)(self._usual_case_of)

    def __call__(self, text: str, config: DecodeConfig) -> Form:
        """Return the form of a line.

        Letters change only in a line of two words or more that is all in capitals, or all in small letters, where such
        lines are rare in the training text; not beside signs of code, where case may have a meaning, and in no language
        that has two letters i.

        Args:
            text: The line without its language tag.
            config: Whose languages say where sentences end, and which letters have a case.
        """
        if not config.familiar or not text.strip():
            return Form(text)
        if self._drops_stray_spaces and has_stray_space(text):
            text = re.sub(" {2,}", " ", text.strip(" "))
        case = letter_case(text)
        is_plain = unicodedata.is_normalized("NFC", text) and len(text.lower()) == len(text) and not _CODE.search(text)
        languages = {(language or "")[:2] for language in (config.source_lang, config.target_lang)}
        if case not in self._unknown_cases or not is_plain or _OTHER_I & languages:
            return Form(text)
        cut = cut_line(text, config.source_lang)
        usual = join_sentences(list(map(self._in_usual_case, cut.sentences)), cut.gaps)
        return Form(usual, in_capitals=case == "capitals" and usual != text)

    def _in_usual_case(self, sentence: str) -> str:
        usual = _WORD.sub(lambda word: self._usual_case(word.group()), sentence)
        if "small letters" in self._unknown_cases:  # sentences begin with a capital here
            usual = _WORD.sub(lambda word: _capitalised(word.group()), usual, count=1)
        return usual

    def _usual_case_of(self, word: str) -> str:
        """Return a word as the vocabulary has it: in the fewest pieces, and of equally many in those learned first.

        Pieces are learned in the order of their frequency, but for single letters, whose capitals come first.
        """
        if len(word) > _LONGEST_WORD:
            return word
        small, capitals = word.lower(), word.upper()
        forms = [form for form in dict.fromkeys((small, _capitalised(small), capitals)) if len(form) == len(word)]
        spelled = {form: self._tokenizer.encode(form) for form in forms}
        return min(forms, key=lambda form: (len(spelled[form]), form == capitals, sum(spelled[form])))


def _capitalised(word: str) -> str:
    first = word[0].title()
    return first + word[1:] if len(first) == 1 else word  # a capital of `ß` is two letters
