"""gettext catalogues, `.po` and `.mo`: messages as sentence pairs, and the direction of reading.

See https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from gettext import c2py

from clearhead.errors import ConfigError, DataError
from clearhead.files.streams import display_name
from clearhead.formats.file_text import read_bytes
from clearhead.formats.languages import is_variant
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.text.lines import segment_on_one_line

PLACEHOLDER = "CHARSET"
"""Placeholder for the encoding in a template."""
# ASCII text as in a catalogue. gettext supports only encodings that contain ASCII; others, such as UTF-7, would decode
# a catalogue to different text.
ASCII_SAMPLE = b'#~, msgid "a\\n+-%(b)s"'


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a catalogue."""

    place: int
    """Line number of its start, or number of the message in a file without lines; counted from 1."""
    source: str
    """Source text (`msgid`)."""
    translations: Sequence[str]
    """Translation, or one for each plural form of the target language."""
    plural: str | None = None
    """Source text of the plural (`msgid_plural`)."""
    context: str | None = None
    """Context that distinguishes messages with the same source (`msgctxt`)."""
    is_fuzzy: bool = False
    """Whether its translation is marked as needing review."""
    is_obsolete: bool = False
    """Whether it is marked as no longer used."""
    problem: str | None = None
    """Reason why it cannot be parsed."""

    @property
    def is_header(self) -> bool:
        """Whether it is the header, which holds the metadata of the catalogue."""
        return not (self.source or self.context is not None or self.is_obsolete or self.problem)

    def sides(self, form_of_one: int) -> list[tuple[str, str]]:
        """Return source and translation; for a plural, two pairs: the form for one, and the last of the other forms.

        Args:
            form_of_one: Index of the plural form for one thing, counted from 0.
        """
        if self.plural is None:
            return [(self.source, self.translations[0])]
        singular = form_of_one if form_of_one < len(self.translations) else 0
        others = [*self.translations[:singular], *self.translations[singular + 1 :]] or self.translations
        return [(self.source, self.translations[singular]), (self.plural, others[-1])]

    def fields(self) -> dict[str, str]:
        """Return the fields of a header, by their lower-case names."""
        lines = (line.partition(":") for line in self.translations[0].splitlines())
        return {name.strip().lower(): value.strip() for name, _, value in lines}


def charset_of(header: Message | None, name: str) -> str | None:
    """Return the encoding that a header declares; None if it declares none.

    Args:
        header: The first message, decoded so that at least its ASCII characters are right; None if there is none.
        name: Name of the file in messages.

    Raises:
        DataError: If the encoding is unknown, or cannot encode a catalogue.
    """
    declared = header.fields().get("content-type", "") if header is not None and header.is_header else ""
    match = re.search(r"charset=\s*([^\s;]+)", declared, re.IGNORECASE)
    if not match or match[1].upper() == PLACEHOLDER:
        return None
    try:
        is_fit = ASCII_SAMPLE.decode(match[1]) == ASCII_SAMPLE.decode("ascii")
    except (LookupError, ValueError):  # ValueError: a name with NUL, or a failed decoding
        is_fit = False
    if not is_fit:
        raise DataError(
            f"{name} declares the encoding {match[1][:40]!r}, which is not known or cannot hold a catalogue; "
            f"if it is UTF-8, write charset=UTF-8 into its header"
        )
    return match[1]


def open_catalogue(
    path: str, wanted: Wanted, format: str, messages: Callable[[bytes, str], Iterator[Message]]
) -> PairFile:
    """Open a catalogue of sentence pairs from its header; the messages are read when iteration begins.

    Each message gives a pair. A message with plural forms gives two: `msgid` with the form for one thing, which the
    header determines, and `msgid_plural` with the last of the other forms. A line ending in a text becomes a space.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Requested languages. The header names the language of the translations; if this is requested as source,
            and not as target, source and target are exchanged.
        format: Description of the format.
        messages: Returns the messages of a file from its bytes and its name in messages.

    Raises:
        ConfigError: If the catalogue does not have the requested languages.
        DataError: If the file cannot be read, is too large, or is not a catalogue; also raised during iteration.
    """
    data = read_bytes(path)
    first = next(messages(data, display_name(path)), None)
    fields = first.fields() if first is not None and first.is_header else {}
    has = fields.get("x-source-language") or None, fields.get("language") or None
    first_form = form_of_one(fields.get("plural-forms", ""))
    kept = None if os.path.isfile(path) else data  # a pipe can be read only once
    del data, first

    def pairs() -> Iterator[SentencePair]:
        for message in messages(read_bytes(path) if kept is None else kept, display_name(path)):
            yield from _pairs(path, message, first_form)

    words = ("msgid", "msgstr")
    sides = words[0] + (f" ({has[0]})" if has[0] else ""), words[1] + (f" ({has[1]})" if has[1] else "")
    file = PairFile(path, format, sides, pairs(), has)
    return file.swapped() if _is_reversed(path, has, wanted) else file


def _pairs(path: str, message: Message, form_of_one: int) -> Iterator[SentencePair]:
    origin = f"{path}:{message.place}"
    if message.problem is not None:
        yield SentencePair("", "", origin, defect=message.problem)
        return
    if message.is_header:
        return
    for source, target in message.sides(form_of_one):
        skipped = None
        if message.is_obsolete:
            skipped = "obsolete"
        elif not target:
            skipped = "untranslated"
        elif message.is_fuzzy:
            skipped = "unfinished"
        texts = segment_on_one_line(source), segment_on_one_line(target)
        yield SentencePair(*texts, origin, skipped=skipped, context=message.context)


def form_of_one(rule: str) -> int:
    """Return the index of the plural form for one thing, from the rule in a header; 0 if it cannot be determined.

    >>> form_of_one("nplurals=2; plural=(n != 1);"), form_of_one("nplurals=3; plural=n == 0 ? 0 : n == 1 ? 1 : 2;")
    (0, 1)
    """
    return forms_of(rule, [1])[0]


def forms_of(rule: str, numbers: Iterable[int]) -> list[int]:
    """Return the index of the plural form for each number; that of English if a rule cannot be evaluated."""
    numbers = list(numbers)
    match = re.search(r"plural\s*=([^;]+)", re.sub(r"nplurals\s*=[^;]*", "", rule))
    try:
        if match:
            return [max(0, form) for form in map(c2py(match[1].strip()), numbers)]
    except (ValueError, ArithmeticError, RecursionError):
        pass
    return [int(number != 1) for number in numbers]


def _is_reversed(path: str, has: tuple[str | None, str | None], wanted: Wanted) -> bool:
    """Return whether the reverse direction is requested.

    Raises:
        ConfigError: If neither direction has the requested languages.
    """
    asked = wanted.from_lang, wanted.to_lang
    forward, backward = _agreement(has, asked), _agreement(has[::-1], asked)
    if backward and (forward is None or backward > forward):
        return True
    if forward is not None:
        return False
    names = [f"{word} in {language!r}" for word, language in zip(("msgid", "msgstr"), has, strict=True) if language]
    directions = [f"{word} {language!r}" for word, language in zip(("from", "to"), asked, strict=True) if language]
    raise ConfigError(
        f"{display_name(path)} has {' and '.join(names)}, as its header says, and {' '.join(directions)} is asked for"
    )


def _agreement(has: tuple[str | None, str | None], asked: tuple[str | None, str | None]) -> int | None:
    """Return how many languages are known to match the requested ones; None if one does not match."""
    known = [
        is_variant(language.replace("@", "-"), wanted)
        for language, wanted in zip(has, asked, strict=True)
        if language and wanted
    ]
    return sum(known) if all(known) else None
