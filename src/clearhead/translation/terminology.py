"""Terminology tables: the required translations of source terms; finding terms in sources and translations.

They are read from tables and TBX files, see `formats.glossaries`. A term has its translation, and other forms that are
also accepted: in a table, the parts of a cell between `|`. Rows with the same term are merged.

A term matches a sequence of whole words, with any white space between them. Of several terms that match at the same
place, the longest is taken. A lowercase term matches in any case. A term with a capital letter matches as written, or
in all capitals. A form matches as written, or with a capital first letter.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar

from clearhead.errors import DataError
from clearhead.files import display_name
from clearhead.files.streams import format_extension
from clearhead.text.languages import WITHOUT_SPACES, script_of
from clearhead.text.lines import first_few
from clearhead.text.placeholders import find_placeholders
from clearhead.text.unicode_forms import normalized

T = TypeVar("T")

_MOST_SHOWN = 10
"""Bad lines listed in an error message."""


class Term(NamedTuple):
    """A source term and its accepted translations."""

    source: str
    forms: tuple[str, ...]
    """The required translation first, then its other forms."""


class FoundTerm(NamedTuple):
    """A term found in a text."""

    text: str
    """The matched text."""
    term: Term


class TermWord(NamedTuple):
    """A word, a punctuation mark or symbol, or a placeholder."""

    text: str
    start: int
    end: int


class Terms:
    """A terminology.

    Args:
        terms: Its terms; terms with the same source are merged, with the forms of all.
    """

    def __init__(self, terms: Iterable[Term]) -> None:
        together: dict[str, dict[str, None]] = {}
        for term in terms:
            together.setdefault(term.source, {}).update(dict.fromkeys(term.forms))
        self.terms = tuple(Term(source, tuple(forms)) for source, forms in together.items())
        self._phrases: _Phrases[tuple[Term, frozenset[tuple[str, ...]]]] = _Phrases()
        # Terms with capitals before lowercase ones.
        for term in sorted(self.terms, key=lambda term: _is_lowercase(term.source)):
            own = _texts(term_words(term.source))
            written = () if _is_lowercase(term.source) else (own, tuple(word.upper() for word in own))
            self._phrases.add(tuple(word.lower() for word in own), (term, frozenset(written)))

    def __len__(self) -> int:
        return len(self.terms)

    @classmethod
    def load(cls, path: str | Path, *, from_lang: str | None = None, to_lang: str | None = None) -> Self:
        """Read a terminology: a table (`.tsv`, `.csv`, `.xlsx`), or TBX (`.tbx`).

        Args:
            path: The file.
            from_lang: Language of the terms, such as `en`, in files that name languages.
            to_lang: Language of their translations.

        Raises:
            ConfigError: If the file has several languages or columns, and it is not clear which to read.
            DataError: If the file cannot be read or has no terms, or listing the invalid lines.
        """
        from clearhead.formats import Wanted  # most searches have no terms
        from clearhead.formats.glossaries.tables import read_table
        from clearhead.formats.glossaries.tbx import read_tbx

        name = str(path)
        read = read_tbx if format_extension(name) == ".tbx" else read_table
        terms, problems = [], []
        for row in read(name, Wanted(from_lang=from_lang, to_lang=to_lang)):
            try:
                if row.problem:
                    raise DataError(row.problem)
                terms.append(term_of(row.source, row.forms))
            except DataError as error:
                problems.append(f"{row.place}: {error}")
        if problems:
            raise DataError(first_few(problems, _MOST_SHOWN, "; "))
        if not terms:
            where = f" from {from_lang} to {to_lang}" if from_lang and to_lang else ""
            rows = "" if read is read_tbx else "; a line is a term, a tab, and its translation"
            raise DataError(f"{display_name(name)} has no terms{where}{rows}")
        return cls(terms)

    def found_in(self, text: str, *, any_case: bool = False) -> list[FoundTerm]:
        """Return every occurrence of a term in a source text, in order; placeholders are never searched.

        Args:
            text: The source text.
            any_case: Match terms with capital letters in any case too, because the text was in all capitals before it
                was normalized.

        >>> terms = Terms([Term("hot dog", ("Hotdog",)), Term("dog", ("Hund",))])
        >>> [term.text for term in terms.found_in("A dog eats a Hot  Dog, and dogs do not.")]
        ['dog', 'Hot  Dog']
        """
        words, place = term_words(text), 0
        texts = _texts(words)
        lowercase = [word.lower() for word in texts]
        terms: list[FoundTerm] = []
        while place < len(words):
            for end, (term, written) in self._phrases.at(lowercase, place):
                if any_case or not written or texts[place:end] in written:
                    terms.append(FoundTerm(text[words[place].start : words[end - 1].end], term))
                    place = end - 1
                    break
            place += 1
        return terms


def forms_in(terms: Sequence[FoundTerm], text: str, codes: Collection[str] | None = None) -> list[str]:
    """Return the form that a translation has for each term, as written there; empty for a missing term.

    Args:
        terms: The terms of the source.
        text: The translation.
        codes: Placeholders of the source, as for `term_words`.

    >>> dog = FoundTerm("dog", Term("dog", ("Hund", "Hunde")))
    >>> forms_in([dog, dog], "Der Hund bellt in der Hundehütte.")
    ['Hund', '']
    """
    from clearhead.decoding.constraints import precedence  # most searches have no terms

    words, place = term_words(text, codes), 0
    texts = _texts(words)
    forms = [""] * len(terms)
    missing: dict[int, deque[int]] = {}
    """Numbers of the occurrences of each term (by its id) without a form."""
    for number, (_, term) in enumerate(terms):
        missing.setdefault(id(term), deque()).append(number)
    phrases: _Phrases[tuple[int, deque[int]]] = _Phrases()
    for numbers in missing.values():
        term = terms[numbers[0]].term
        for own in {way for form in term.forms for way in _ways(_texts(term_words(form, codes)))}:
            phrases.add(own, (len(term.forms), numbers))
    while place < len(words):
        open_terms = ((end, num_forms, numbers[0]) for end, (num_forms, numbers) in phrases.at(texts, place) if numbers)
        best = min(open_terms, key=lambda candidate: precedence(*candidate), default=None)
        if best is not None:
            end, _, number = best
            forms[number] = text[words[place].start : words[end - 1].end]
            missing[id(terms[number].term)].popleft()
            place = end - 1
        place += 1
    return forms


def is_in_word(character: str) -> bool:
    """Return whether a character can share a word with a neighbouring character.

    >>> is_in_word("ß"), is_in_word("7"), is_in_word("-"), is_in_word("語")
    (True, True, False, False)
    """
    return _kind(character) == "word"


def term_of(source: str, forms: Sequence[str]) -> Term:
    """Return a term; strip its texts, and drop blank forms after the first.

    Args:
        source: The source term.
        forms: Its translations; at least one, and the first not blank.

    Raises:
        DataError: If the source term or its translation is blank.
    """
    own, *others = (form.strip() for form in forms) if forms else [""]
    if not term_words(source):
        raise DataError("there is no term")
    if not own:
        raise DataError(f"no translation of {source.strip()!r}")
    return Term(source.strip(), (own, *filter(None, others)))


@lru_cache(maxsize=10_000)
def _kind(character: str) -> str:
    """Return `space`, `word`, or the character itself if it is a word of its own."""
    if character.isspace():
        return "space"
    category = unicodedata.category(character)
    if category[0] in "LMN" or category == "Pc":
        return character if script_of(character) in WITHOUT_SPACES else "word"
    return character


def term_words(text: str, codes: Collection[str] | None = None) -> list[TermWord]:
    """Return the words, punctuation marks and symbols of a text; a placeholder is one word.

    Args:
        text: Any text.
        codes: The placeholders that count as one, for a translation those of its source: what only looks like one
            consists of words, such as `/Hund/Katze/`. By default all count.

    >>> [word.text for word in term_words("Don't open %s.")]
    ['Don', "'", 't', 'open', '%s', '.']
    """
    words: list[TermWord] = []
    start = 0
    for match in find_placeholders(text):
        if codes is not None and match[0] not in codes:
            continue
        words += _words_between(text, start, match.start())
        words.append(TermWord(match[0], *match.span()))
        start = match.end()
    return [*words, *_words_between(text, start, len(text))]


def _words_between(text: str, start: int, end: int) -> Iterable[TermWord]:
    for kind, group in groupby(range(start, end), key=lambda place: _kind(text[place])):
        places = list(group)
        if kind == "word":
            yield TermWord(text[places[0] : places[-1] + 1], places[0], places[-1] + 1)
        elif kind != "space":
            yield from (TermWord(text[place], place, place + 1) for place in places)


def _texts(words: Sequence[TermWord]) -> tuple[str, ...]:
    """Return the texts of words as they are compared: canonically equivalent ones are the same."""
    return tuple(normalized(word.text) for word in words)


def _is_lowercase(text: str) -> bool:
    return text == text.lower()


def _ways(form: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the ways to write a form: as it is, and with a capital first letter."""
    return form, (form[0][:1].upper() + form[0][1:], *form[1:])


class _Phrases(Generic[T]):
    """Values by sequences of words, to be found at a place of a text."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], list[T]] = {}
        self._lengths: dict[str, list[int]] = {}
        """Lengths of the sequences by their first word, longest first."""

    def add(self, phrase: tuple[str, ...], value: T) -> None:
        """Add a value; those of one sequence keep their order."""
        if phrase not in self._values:
            lengths = {*self._lengths.get(phrase[0], ()), len(phrase)}
            self._lengths[phrase[0]] = sorted(lengths, reverse=True)
        self._values.setdefault(phrase, []).append(value)

    def at(self, words: Sequence[str], place: int) -> Iterator[tuple[int, T]]:
        """Yield the values of the sequences that begin at a place, longest first, each with the place of its end."""
        for length in self._lengths.get(words[place], ()):
            for value in self._values.get(tuple(words[place : place + length]), ()):
                yield min(place + length, len(words)), value
