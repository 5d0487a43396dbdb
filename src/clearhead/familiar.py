"""Lines in the form of the training text, which has `Ein Mann geht`, but seldom `EIN MANN GEHT` or `ein mann   geht`.

A model spells capitals letter by letter and has seen few of them, so it translates them badly. Here a line that differs
from the training text as a whole is brought to its form first: letters get the case in which the vocabulary has their
words, and stray white space goes. What is not rare in the training text is left as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from clearhead.line_statistics import LineStatistics, has_stray_space, letter_case
from clearhead.tokenizer import Tokenizer

__all__ = ["Familiar", "Form"]

_RARE = 0.01
"""What less than this share of the training lines is like, a model does not know well."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_CODE = re.compile(r"[%{}<>&$\\_@#=|/]")
"""Signs of text that case matters in: placeholders, markup, addresses, paths."""

_MOST_WORDS = 65_536


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
        self._drops_stray_space = trained is not None and trained.seldom_has_stray_space(_RARE)
        self._usual_case = lru_cache(_MOST_WORDS)(self._usual_case_of)

    def __call__(self, text: str) -> Form:
        """Return the form of a line, which has no language tag.

        Letters change only in a line that is all in capitals, or all in small letters, where such lines are rare in the
        training text; not beside signs of code, where case may have a meaning.
        """
        if not text.strip():
            return Form(text)
        if self._drops_stray_space and has_stray_space(text):
            text = re.sub(" {2,}", " ", text.strip(" "))
        case = letter_case(text)
        if case not in self._unknown_cases or _CODE.search(text):
            return Form(text)
        words = _WORD.sub(lambda word: self._usual_case(word.group()), text)
        usual = _WORD.sub(lambda word: _capitalised(word.group()), words, count=1)  # it begins a sentence
        return Form(usual, in_capitals=case == "capitals" and usual != text)

    def _usual_case_of(self, word: str) -> str:
        """Return a word as the vocabulary has it: in the fewest pieces, and of equally many in those learned first.

        Pieces are learned in the order of their frequency.
        """
        small = word.lower()
        forms = dict.fromkeys((small, _capitalised(small), word.upper()))
        spelled = {form: self._tokenizer.encode(form) for form in forms}
        return min(forms, key=lambda form: (len(spelled[form]), sum(spelled[form])))


def _capitalised(word: str) -> str:
    return word[0].upper() + word[1:]
