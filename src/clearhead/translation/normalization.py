"""Normalize lines to the Unicode form, case and white space of the training text.

The training text has `Ein Mann geht`, but seldom `EIN MANN GEHT` or `ein mann   geht`. A model tokenizes capitals
letter by letter and has seen few of them, so it translates them badly. A line that differs from the training text as a
whole is therefore normalized first: its words get the case that they have in the vocabulary, and stray white space is
removed. Forms that are not rare in the training text are kept. Before that, every line is brought to the Unicode form
that the model knows (`text.unicode_forms`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from clearhead.config import DecodeConfig
from clearhead.runtime.interruption import check_interruption
from clearhead.runtime.lazy import LruCache
from clearhead.text.line_statistics import LineStatistics, has_uneven_space, letter_case
from clearhead.text.placeholders import change_words, words_alone
from clearhead.text.sentence_splitting import CutLine, cut_line, list_marker
from clearhead.text.unicode_forms import TextForm, form_of_vocabulary
from clearhead.tokenizers import Vocabulary

CASED_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f])*(?:['’](?:[^\W\d_]|[\u0300-\u036f])+)*")
SINGLE_WORD = re.compile(r"\W*([^\W\d_]{4,})\W*")

OTHER_I = ("tr", "tur", "az")
"""Prefixes of the codes of languages that have `ı` as well, so that `i` and `I` are different letters."""

_SPACES = re.compile(r"\s{2,}")

MOST_WORDS, LONGEST_CASED = 65_536, 40


class NormalizedLine(NamedTuple):
    """A line as the model reads it, with its sentences."""

    text: str
    """The whole line."""
    cut: CutLine
    """The line in sentences; the white space between them is that of the original line."""
    original: tuple[str, ...]
    """The sentences as they are in the original line."""
    in_capitals: bool = False
    """Whether the line was in capitals and its text is not, so that the translation must be converted to capitals."""
    marker: str = ""
    """The list marker at the beginning of the line, which is in none of the others, see `list_marker`."""

    @property
    def whole(self) -> str:
        """The original line."""
        return CutLine(self.original, self.cut.gaps).text


class Normalizer:
    """Normalizes lines to the form of a model's training text.

    Args:
        tokenizer: The vocabulary, which determines the usual case of words.
        trained: Statistics of the training lines; if None, case and white space are not changed.
    """

    def __init__(self, tokenizer: Vocabulary, trained: LineStatistics | None) -> None:
        self._tokenizer = tokenizer
        self._form, _ = known_forms(tokenizer, trained)
        self._unknown_cases = () if trained is None else trained.rare_cases()
        self._drops_stray_space = trained is not None and trained.seldom_has_stray_space()
        self._target_characters = frozenset[str]() if trained is None else trained.known_characters()[1]
        self._usual_case = LruCache(self._usual_case_of, MOST_WORDS)

    def __call__(
        self,
        text: str,
        config: DecodeConfig,
        target_lang: str | None = None,
        *,
        keep_case: bool = False,
        as_text: bool = False,
    ) -> NormalizedLine:
        """Return the normalized form of a line.

        Case changes only in a line that is all capitals or all small letters, if such lines are rare in the training
        text. The line must have two words or more, or be one word that the vocabulary has whole but not in capitals.
        Case does not change in placeholders and code (`words_alone`), nor where `i` and `I` may be different letters.

        Args:
            text: The line without its language tag.
            config: Decode settings; the source language determines sentence boundaries, and whether `i` and `I` may be
                different letters.
            target_lang: Language of the translation, if the model has language tags.
            keep_case: Do not change the case.
            as_text: Read a list marker at the beginning as text.
        """
        check_interruption()
        as_is = replace(self._form, spaces=None)
        line, (text, starts) = text, (self._form if config.familiar else as_is).aligned(text)
        if not text.strip():  # nothing is left of it but marks
            return NormalizedLine(line, CutLine((line,), ()), (line,))
        if begins := 0 if as_text else len(list_marker(text)):
            begins = begins if starts is None else starts[begins]
            rest = self(line[begins:], config, target_lang, keep_case=keep_case, as_text=True)
            return rest._replace(marker=as_is(line[:begins]))
        cut = cut_line(text, config.source_lang)
        original = cut if starts is None else _original_cut(line, text, cut, starts)
        if not config.familiar:
            return NormalizedLine(text, CutLine(cut.sentences, original.gaps), original.sentences)
        drops = self._drops_stray_space and has_uneven_space(text)
        read = tuple(map(_without_stray_space, cut.sentences)) if drops else cut.sentences
        case = None if keep_case else self._rare_case(text, config.source_lang, target_lang)
        usual = tuple(map(self._in_usual_case, read)) if case else read
        if usual != cut.sentences or drops:
            gaps = tuple(gap and " " for gap in cut.gaps) if drops else cut.gaps
            text = CutLine(usual, gaps).text
        in_capitals = case == "capitals" and usual != read
        return NormalizedLine(text, CutLine(usual, original.gaps), original.sentences, in_capitals)

    def _rare_case(self, text: str, source_lang: str | None, target_lang: str | None) -> str | None:
        """Return the case of all words of a line if it is rare in the training text, else None."""
        words = words_alone(text)
        case = letter_case(words)
        if case is None and (word := SINGLE_WORD.fullmatch(words)) and word[1].isupper():
            usual, capitals = (len(self._tokenizer.encode(form)) for form in (self._usual_case(word[1]), word[1]))
            case = "capitals" if usual == 1 and capitals > 2 else None  # a word known in capitals is a name
        if case not in self._unknown_cases:
            return None
        if (
            len(text.lower()) != len(text)
            or _has_other_i(source_lang, text)
            or _has_other_i(target_lang, self._target_characters)
        ):
            return None
        return case

    def _in_usual_case(self, sentence: str) -> str:
        begins = "small letters" in self._unknown_cases  # then sentences of the training text begin with a capital
        is_marked_up = sentence.startswith("<")  # a tag is not the beginning of the sentence

        def usual_case(words: str) -> str:
            nonlocal begins
            usual = CASED_WORD.sub(lambda word: self._usual_case(word.group()), words)
            begun = next(filter(str.isalnum, words), None)
            if begins and begun is not None and begun.isalpha():
                usual = CASED_WORD.sub(lambda word: _capitalised(word.group()), usual, count=1)
            begins = begins and begun is None and is_marked_up
            return usual

        return change_words(sentence, usual_case)

    def _usual_case_of(self, word: str) -> str:
        """Return a word in its usual case: the one with the fewest tokens, then with the pieces learned first.

        Pieces are learned in the order of their frequency, which is nearly always that of the words (but not in English
        beside German, where ` Man` of `Mann` comes before ` man`). Single letters come first, capitals before the
        others.
        """
        if len(word) > LONGEST_CASED:
            return word
        small, capitals = word.lower(), word.upper()
        forms = [form for form in dict.fromkeys((small, _capitalised(small), capitals)) if len(form) == len(word)]
        encoded = {form: self._tokenizer.encode(form) for form in forms}
        return min(forms, key=lambda form: (len(encoded[form]), form == capitals, sum(encoded[form])))


def known_forms(tokenizer: Vocabulary, trained: LineStatistics | None) -> tuple[TextForm, TextForm]:
    """Return the Unicode forms in which a model knows sources and targets.

    Args:
        tokenizer: Its vocabulary.
        trained: Statistics of its training lines; None if they are unknown.
    """
    if trained is not None:
        return trained.forms()
    return form_of_vocabulary(lambda text: tokenizer.source_pieces(tokenizer.encode(text))), TextForm()


def _original_cut(line: str, text: str, cut: CutLine, starts: Sequence[int]) -> CutLine:
    """Return the sentences of a line before it was brought to another form, and the white space between them.

    Args:
        line: The line.
        text: The line in its new form.
        cut: The sentences of the text.
        starts: The start of each character of the text, and of its end, in the line.
    """
    if not cut.gaps:
        return CutLine((line,), ())
    sentences, gaps = [], []
    first, end = len(line) - len(line.lstrip()), len(text) - len(text.lstrip())
    for sentence, gap in zip(cut.sentences, cut.gaps, strict=False):
        end += len(sentence)
        sentences.append(line[first : starts[end]])
        # Marks that are left out belong to a sentence, not to the white space.
        first = starts[end + len(gap) - 1] + 1 if gap else starts[end]
        gaps.append(line[starts[end] : first])
        end += len(gap)
    return CutLine((*sentences, line[first : len(line.rstrip())]), tuple(gaps))


def _without_stray_space(sentence: str) -> str:
    return change_words(sentence.strip(), lambda words: _SPACES.sub(" ", words))


def _capitalised(word: str) -> str:
    first = word[0].title()
    return first + word[1:] if len(first) == 1 else word  # the capital of `ß` is two letters


def _has_other_i(language: str | None, characters: Container[str]) -> bool:
    """Return whether a text is in a language with two letters i; if the language is None, judge by its characters."""
    return language.lower().startswith(OTHER_I) if language else "ı" in characters or "İ" in characters
