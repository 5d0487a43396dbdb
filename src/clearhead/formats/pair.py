"""Sentence pairs, as corpus readers yield them, and files of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from clearhead.errors import DataError
from clearhead.text.word_links import Link

Columns = tuple[int | str, int | str]
"""Columns of source and target in a table: an integer is a number counted from 1, a string a name in the header."""

SKIPS = {
    "untranslated": "the file has no translation of it",
    "unfinished": "the file marks its translation as not finished or not checked (fuzzy)",
    "obsolete": "the file marks it as no longer used",
    "not_to_translate": "the file says that it is not to be translated",
    "without_text": "it names both languages that are read, but has no text in one (in a TMX: a <tuv> without <seg>)",
    "other_languages": "it lacks one of the two languages that are read",
    "unpaired": "nothing in the other file belongs to it",
}
"""Reasons why the file itself excludes an entry from training, with their descriptions."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which source and target to read from a file of pairs; the reader chooses what is None."""

    columns: Columns | None = None
    from_lang: str | None = None
    """Source language, such as `en` or `de-AT`, in files that name languages."""
    to_lang: str | None = None
    """Target language."""


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A segment and its translation, exactly as in the file: not stripped, not normalised."""

    source: str
    """Text to translate; may be blank: cleaning counts such pairs and drops them."""
    target: str
    """Translation of the source; may be blank too."""
    origin: str
    """Start of the pair as `file:line`, lines counted from 1; with two files, in the first one."""
    language: str | None = None
    """Language named by a tag at the start of the source; set by cleaning."""
    text_at: int = 0
    """Position in the source of its text, after the language tag."""
    defect: str | None = None
    """Why the row is no pair; its texts are then empty, and the row is counted."""
    skipped: str | None = None
    """Key of `SKIPS` for an entry excluded from training; such entries are counted and are no errors of the file."""
    links: tuple[Link, ...] | None = None
    """Word alignment of the text and the target (words as in `words_of`); None if none was given."""
    context: str | None = None
    """What distinguishes it from other pairs with the same source (`msgctxt` of a catalogue); None if nothing does."""

    @property
    def is_pair(self) -> bool:
        """Whether it is a pair to use: its row has no defect, and the file does not exclude it."""
        return self.defect is None and self.skipped is None

    @property
    def text(self) -> str:
        """The source without its language tag."""
        return self.source[self.text_at :]

    @property
    def line(self) -> int:
        """Line number of the pair in its file."""
        return int(self.origin.rpartition(":")[2])

    def swapped(self) -> SentencePair:
        """Return the pair with source and target exchanged."""
        links = self.links and tuple((target, source) for source, target in self.links)
        return replace(self, source=self.target, target=self.source, links=links)


EMPTY = "empty"
"""Format of a file without anything from which a format could be detected."""


@dataclass(frozen=True)
class PairFile:
    """An open file of sentence pairs."""

    path: str
    """Path as the caller gave it."""
    format: str
    """Description of the detected format."""
    sides: tuple[str, str]
    """Descriptions of where source and target are in the file."""
    pairs: Iterator[SentencePair]
    """Its pairs, one per row, including rows with a defect; can be iterated only once."""
    languages: tuple[str | None, str | None] = (None, None)
    """Languages of source and target, if the file names them."""
    is_unnamed: bool = False
    """Whether it is a table without names of its columns."""

    @property
    def read_as(self) -> str:
        """Description of the format and the reading direction."""
        return self.format if self.format == EMPTY else f"{self.format}; from {self.sides[0]} to {self.sides[1]}"

    def swapped(self) -> PairFile:
        """Return the file with source and target exchanged."""
        sides, languages = self.sides[::-1], self.languages[::-1]
        return replace(self, sides=sides, languages=languages, pairs=(pair.swapped() for pair in self.pairs))


LINE_ENDS = {"\n": "line feed", "\r": "carriage return"}
"""Line endings, with their names; no segment may contain one, because a segment is always a single line."""


def refuse_signs(pair: SentencePair, signs: Mapping[str, str], keeper: str) -> None:
    """Raise `DataError` if writing the pair and reading it again would change it.

    Args:
        pair: The pair to write.
        signs: Characters that neither side may contain, with their names.
        keeper: Description of the format that cannot represent them.

    Raises:
        DataError: If a side contains one of them; the message names the pair, the side and the character.
    """
    for side, text in (("source", pair.source), ("target", pair.target)):
        for sign, name in signs.items():
            if sign in text:
                raise DataError(
                    f"{pair.origin}: the {side} holds a {name}, which {keeper} cannot keep; "
                    f"replace it, or write another format"
                )
