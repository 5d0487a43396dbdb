"""What every corpus reader yields: a source segment, its translation, and where they stood; and a file full of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from clearhead.errors import DataError
from clearhead.text.word_links import Link

__all__ = [
    "LINE_ENDS",
    "SKIPS",
    "Columns",
    "PairFile",
    "SentencePair",
    "Wanted",
    "on_one_line",
    "refuse_signs",
]

Columns = tuple[int | str, int | str]
"""Source and target of a table: a number counts from 1, a name stands in the header."""

SKIPS = {
    "untranslated": "the file has no translation of it",
    "unfinished": "the file marks its translation as not finished or not checked (fuzzy)",
    "obsolete": "the file marks it as no longer used",
    "not_to_translate": "the file says that it is not to be translated",
    "other_languages": "it lacks one of the two languages that are read",
    "unpaired": "nothing in the other file belongs to it",
}
"""Why a file itself says that an entry is no pair to learn from, and what that means."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which texts of a file of pairs are asked for; what is not said is left to the file."""

    columns: Columns | None = None
    from_lang: str | None = None
    """Language of the source, such as `en` or `de-AT`, in files that name languages."""
    to_lang: str | None = None
    """Language of the target."""


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A segment and its translation, as they stand in the file: nothing stripped, nothing normalised."""

    source: str
    """Text to translate; may be blank, cleaning counts and drops it."""
    target: str
    """Its translation; may be blank as well."""
    origin: str
    """`file:line` of where it begins, lines counted from 1; of two files, of the first one."""
    language: str | None = None
    """What a language tag at the head of the source names; cleaning looks for one."""
    text_at: int = 0
    """Where the source's text begins, behind that tag."""
    defect: str | None = None
    """Why this row of its file is no pair; it has no text then, and is counted."""
    skipped: str | None = None
    """One of `SKIPS` for an entry that is none to learn from; it is counted, and no mistake of the file."""
    links: tuple[Link, ...] | None = None
    """Which words of the text its target's words stand for (`words_of`); None where nothing was said of that."""

    @property
    def text(self) -> str:
        """The source without its language tag."""
        return self.source[self.text_at :]

    @property
    def line(self) -> int:
        """Number of the line in the file it comes from."""
        return int(self.origin.rpartition(":")[2])

    def swapped(self) -> SentencePair:
        """Return the pair in the other direction."""
        links = self.links and tuple((target, source) for source, target in self.links)
        return replace(self, source=self.target, target=self.source, links=links)


@dataclass(frozen=True)
class PairFile:
    """A file that holds both sides, as its reader understands it."""

    path: str
    """As it was named."""
    format: str
    """What it was taken for, in words."""
    sides: tuple[str, str]
    """Where in it source and target stand, in words."""
    pairs: Iterator[SentencePair]
    """Its pairs, one for every row, also for those with a defect; to be streamed once."""
    languages: tuple[str | None, str | None] = (None, None)
    """Languages of source and target, where the file names them."""

    @property
    def read_as(self) -> str:
        """What it was taken for, and in which direction it is read, in words."""
        return f"{self.format}; from {self.sides[0]} to {self.sides[1]}"

    def swapped(self) -> PairFile:
        """Return the file read in the other direction."""
        sides, languages = self.sides[::-1], self.languages[::-1]
        return replace(self, sides=sides, languages=languages, pairs=(pair.swapped() for pair in self.pairs))


LINE_ENDS = {"\n": "line feed", "\r": "carriage return"}
"""What no segment holds, for a segment is a line everywhere; and its name."""


def on_one_line(text: str) -> str:
    r"""Return a text with a space for every line end, as a segment is a line everywhere.

    >>> on_one_line("one\r\ntwo\n")
    'one two '
    """
    return re.sub(r"\r\n|\n|\r", " ", text) if "\n" in text or "\r" in text else text


def refuse_signs(pair: SentencePair, signs: Mapping[str, str], keeper: str) -> None:
    """Refuse to write a pair that would not come back as it is.

    Args:
        pair: The pair.
        signs: Characters that no side may hold, and their names.
        keeper: What cannot keep them, in words.

    Raises:
        DataError: Naming the pair, its side and the character.
    """
    for side, text in (("source", pair.source), ("target", pair.target)):
        for sign, name in signs.items():
            if sign in text:
                raise DataError(
                    f"{pair.origin}: the {side} holds a {name}, which {keeper} cannot keep; "
                    f"replace it, or write another format"
                )
