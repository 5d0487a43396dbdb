"""gettext catalogues, whatever they are written in: which of their messages are pairs, and in which direction.

See https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from gettext import c2py

from clearhead.errors import ConfigError, DataError
from clearhead.files.streams import display_name, open_binary
from clearhead.formats.languages import is_variant
from clearhead.formats.pair import PairFile, SentencePair, Wanted, on_one_line

__all__ = ["MOST_BYTES", "Message", "charset_of", "form_of_one", "open_catalogue"]

MOST_BYTES = 200_000_000
"""Largest catalogue that is read, decompressed; one at a time is held in memory, which takes a few times its bytes."""

PLACEHOLDER = "CHARSET"
"""What stands in a template for the encoding."""
# What a catalogue is made of; gettext knows no encoding in which ASCII is written otherwise, and such as UTF-7 would
# turn text into other text.
ASCII_SAMPLE = b'#~, msgid "a\\n+-%(b)s"'


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a catalogue."""

    place: int
    """Line on which it begins, or its number in a file without lines; counted from 1."""
    source: str
    """What is translated (`msgid`)."""
    translations: Sequence[str]
    """Its translation, or one for each plural form of the language."""
    plural: str | None = None
    """The source where it is about several (`msgid_plural`)."""
    context: str | None = None
    """What tells it from others with the same source (`msgctxt`)."""
    is_fuzzy: bool = False
    """Whether its translation is marked as one to be checked."""
    is_obsolete: bool = False
    """Whether it is marked as no longer used."""
    problem: str | None = None
    """Why it cannot be read."""

    @property
    def is_header(self) -> bool:
        """Whether it is the one that holds what the catalogue says of itself."""
        return not (self.source or self.context is not None or self.is_obsolete or self.problem)

    def sides(self, form_of_one: int) -> list[tuple[str, str]]:
        """Return source and translation, or of plural forms two: that for one, and the last of the others.

        Args:
            form_of_one: Which of the forms is that for one thing, counted from 0.
        """
        if self.plural is None:
            return [(self.source, self.translations[0])]
        one = form_of_one if form_of_one < len(self.translations) else 0
        others = [*self.translations[:one], *self.translations[one + 1 :]] or self.translations
        return [(self.source, self.translations[one]), (self.plural, others[-1])]

    def fields(self) -> dict[str, str]:
        """Return what a header says, by names in lower case."""
        lines = (line.partition(":") for line in self.translations[0].splitlines())
        return {name.strip().lower(): value.strip() for name, _, value in lines}


def charset_of(header: Message | None, name: str) -> str | None:
    """Return the encoding that a header declares, if it does.

    Args:
        header: The first message, of which ASCII has been read right; None if there is none.
        name: The file, for messages.

    Raises:
        DataError: If it is not known, or none that a catalogue can be written in.
    """
    declared = header.fields().get("content-type", "") if header is not None and header.is_header else ""
    found = re.search(r"charset=\s*([^\s;]+)", declared, re.IGNORECASE)
    if not found or found[1].upper() == PLACEHOLDER:
        return None
    try:
        is_fit = ASCII_SAMPLE.decode(found[1]) == ASCII_SAMPLE.decode("ascii")
    except (LookupError, ValueError):  # the second of a name with NUL, and of decoding
        is_fit = False
    if not is_fit:
        raise DataError(
            f"{name} declares the encoding {found[1][:40]!r}, which is not known or cannot hold a catalogue; "
            f"if it is UTF-8, write charset=UTF-8 into its header"
        )
    return found[1]


def open_catalogue(
    path: str, wanted: Wanted, format: str, messages: Callable[[bytes, str], Iterator[Message]]
) -> PairFile:
    """Look at the header of a catalogue and return its pairs; it is read anew, whole, when its turn comes.

    A message is a pair; one with plural forms is two, of `msgid` with the form for one, which the header tells, and of
    `msgid_plural` with the last of the others. A line end within a text becomes a space.

    Args:
        path: `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Languages; the header names that of the translations. If it is the one to translate from, and not the
            one to translate into, the catalogue is read in reverse.
        format: What it was taken for, in words.
        messages: Returns the messages of such a file, from its bytes and its name for messages.

    Raises:
        ConfigError: If it does not have the languages that are asked for.
        DataError: If it cannot be read, is too large, or is no catalogue; streaming raises it too.
    """
    data = _read(path)
    first = next(messages(data, display_name(path)), None)
    fields = first.fields() if first is not None and first.is_header else {}
    has = fields.get("x-source-language") or None, fields.get("language") or None
    first_form = form_of_one(fields.get("plural-forms", ""))
    kept = None if os.path.isfile(path) else data  # a pipe can be read only once
    del data, first

    def pairs() -> Iterator[SentencePair]:
        for message in messages(_read(path) if kept is None else kept, display_name(path)):
            yield from _pairs(path, message, first_form)

    words = ("msgid", "msgstr")
    sides = words[0] + (f" ({has[0]})" if has[0] else ""), words[1] + (f" ({has[1]})" if has[1] else "")
    file = PairFile(path, format, sides, pairs(), has)
    return file.swapped() if _is_reversed(path, has, wanted) else file


def _read(path: str) -> bytes:
    with open_binary(path) as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DataError(
            f"{display_name(path)} is larger than {MOST_BYTES // 1_000_000} MB, and a catalogue is read into memory "
            f"whole; split it, or convert it to TSV"
        )
    return data


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
        yield SentencePair(on_one_line(source), on_one_line(target), origin, skipped=skipped)


def form_of_one(rule: str) -> int:
    """Return which plural form is for one thing, after the rule of a header; the first, if it cannot be told.

    >>> form_of_one("nplurals=2; plural=(n != 1);"), form_of_one("nplurals=3; plural=n == 0 ? 0 : n == 1 ? 1 : 2;")
    (0, 1)
    """
    found = re.search(r"plural\s*=([^;]+)", re.sub(r"nplurals\s*=[^;]*", "", rule))
    try:
        return max(0, c2py(found[1].strip())(1)) if found else 0
    except (ValueError, ArithmeticError, RecursionError):
        return 0


def _is_reversed(path: str, has: tuple[str | None, str | None], wanted: Wanted) -> bool:
    """Tell whether the other direction is asked for.

    Raises:
        ConfigError: If neither is what is asked for.
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
    """Return how many languages are those that are asked for; None if one is another."""
    known = [
        is_variant(language.replace("@", "-"), wanted)
        for language, wanted in zip(has, asked, strict=True)
        if language and wanted
    ]
    return sum(known) if all(known) else None
