r"""Parser of gettext catalogues (`.po`), and their messages read and written as sentence pairs.

The parser is our own, after GNU gettext's grammar (gettext-tools/src/read-po-gram.y), because the two parsers in Python
lose data of files that `msgfmt` accepts. Babel 2.18 keeps one of two equal entries, drops an entry with an empty
`msgid` in a context, and rejects `#~|` and plural forms that no header announces. polib 1.2 loses the last entry before
an empty `#:`, and rejects `#,fuzzy`, `#note` and U+2028 within a text. Both accept a string without its closing
quotation mark and cut off its last letter. A test compares the results with Babel's, on catalogues that Babel can read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from clearhead.errors import DataError
from clearhead.files.streams import UTF8_MARK, open_output, refuse_foreign
from clearhead.formats.gettext.catalogue import Message, charset_of, open_catalogue
from clearhead.formats.pair import LINE_ENDS, PairFile, SentencePair, Wanted, refuse_signs

STRING = r'"((?:[^"\\]|\\.)*+)"'
STRINGS = re.compile(rf"(?:{STRING}\s*+)++")
BEFORE_COMMENT = re.compile(rf"((?:{STRING}|[^\"#])++)#")
"""Part of a line before a comment; quotation marks enclose any `#` that begins none."""
KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)(?:\s*\[\s*([0-9]{1,3})\s*\])?\s*(?=\")")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b", '"': '"', "\\": "\\"}
SHOWN_CHARACTERS = 40


def open_po(path: str, wanted: Wanted) -> PairFile:
    """Open a `.po` catalogue of sentence pairs; its header determines the encoding and the language.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Requested languages, see `open_catalogue`.

    Raises:
        ConfigError: If the catalogue does not have the requested languages.
        DataError: If the file cannot be read, is larger than 200 MB, or is not in its declared encoding.
    """
    return open_catalogue(path, wanted, "gettext catalogue", _messages)


def write_po(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write a catalogue with one message per pair, without contexts, and return the number of pairs.

    Args:
        path: The file; `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written. Pairs with the same source become messages with the
            same `msgid`, which `msgfmt` rejects.
        languages: Source and target language, for the header.

    Raises:
        DataError: If reading would change a pair (its source is empty, or a text contains a line ending or NUL), or the
            file cannot be written.
    """
    count = 0
    header = (
        f"Language: {languages[1]}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        f"Content-Transfer-Encoding: 8bit\nX-Source-Language: {languages[0]}\n"
    )
    with open_output(path) as file:
        file.write('msgid ""\nmsgstr ""\n' + "".join(f"{quoted(line)}\n" for line in header.splitlines(keepends=True)))
        for pair in pairs:
            refuse_signs(pair, {"\0": "NUL character", **LINE_ENDS}, "a .po")
            if not pair.source:
                raise DataError(f"{pair.origin}: the source is empty, and in a .po this is its header; leave it out")
            file.write(f"\nmsgid {quoted(pair.source)}\nmsgstr {quoted(pair.target)}\n")
            count += 1
    return count


def quoted(text: str) -> str:
    """Return a text as a quoted string of a catalogue, on one line."""
    return '"' + "".join(f"\\{_LETTERS[sign]}" if sign in _LETTERS else sign for sign in text) + '"'


_LETTERS = {sign: letter for letter, sign in ESCAPES.items()}


def _unquoted(strings: str) -> str:
    """Return the text of one or more quoted strings; an escape unknown to gettext is kept as written."""
    text = "".join(match[1] for match in re.finditer(STRING, strings))
    return re.sub(r"\\(.)", lambda escape: ESCAPES.get(escape[1], escape[0]), text) if "\\" in text else text


def _messages(data: bytes, name: str) -> Iterator[Message]:
    """Yield the messages of a file, including those with a `problem`."""
    text, _ = decoded_catalogue(data, name)
    yield from (entry.message() for entry in entries_of(text.split("\n")))


def decoded_catalogue(data: bytes, name: str) -> tuple[str, str]:
    r"""Return the text of a catalogue, without byte order mark, and its encoding as the catalogue names it.

    Args:
        data: All bytes of the file. Without `\n`, each `\r` ends a line, and is a `\n` in the text.
        name: Name of the file in messages.

    Raises:
        DataError: If the data is not text, or not in its declared encoding.
    """
    refuse_foreign(data[:4], name)
    data = with_line_feeds(data)
    if (nul := data.find(b"\0")) >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise DataError(f"{name}, line {line}: there is a NUL byte (0x00); is it a binary file?")
    if data.startswith(UTF8_MARK):
        data, charset, why = data[len(UTF8_MARK) :], "UTF-8", "as its byte order mark says"
    else:
        # Latin-1 decodes any bytes, and the relevant parts of the header are ASCII.
        first = next(entries_of(_latin_lines(data)), None)
        declared = charset_of(None if first is None else first.message(), name)
        charset, why = declared or "UTF-8", "as its header says" if declared else "for no header says otherwise"
    if codecs.lookup(charset).name != "utf-8" and not data.isascii() and _is_utf8(data):
        line, _ = _position(data, next(place for place, code in enumerate(data) if code > 127))
        raise DataError(
            f"{name}, line {line}: this is UTF-8, not {charset}, {why}; write charset=UTF-8 into the header"
        )
    try:
        return data.decode(charset), charset
    except UnicodeDecodeError as error:
        line, byte = _position(data, error.start)
        raise DataError(
            f"{name}, line {line}: byte {byte} (0x{data[error.start]:02x}) is not valid {charset}, in which the file "
            f"is, {why}; let the header say the right one, for example charset=ISO-8859-1"
        ) from None


def with_line_feeds(data: bytes) -> bytes:
    r"""Return a file with `\n` in place of each `\r` if it has no other line ends; all positions stay the same."""
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def _latin_lines(data: bytes) -> Iterator[str]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end].decode("latin-1")
        start = end


def _position(data: bytes, place: int) -> tuple[int, int]:
    return data.count(b"\n", 0, place) + 1, place - data.rfind(b"\n", 0, place)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class CatalogueLine(NamedTuple):
    """A line that is not blank."""

    number: int
    words: str
    """The whole line, stripped and without the mark of obsolete messages."""
    is_obsolete: bool
    is_apart: bool
    """Whether a blank line precedes it."""
    keyword: str
    """Keyword, such as `msgid`; empty if there is none, as in a continuation line."""
    form: int | None
    """Number of the plural form after the keyword."""
    text: str | None
    """Text of its strings; None for a comment or a malformed line."""
    is_tail: bool
    """Whether it is a comment at the end of a line, which begins the next message, as in gettext."""

    @property
    def is_comment(self) -> bool:
        """Whether it is a comment."""
        return self.words.startswith("#")

    @property
    def begins(self) -> str | None:
        """Keyword at its start if it is one that begins a message, even if the rest of the line is malformed."""
        match = re.match("msgctxt|msgid(?!_plural)", self.words)
        return match[0] if match else None


def _lines(lines: Iterable[str]) -> Iterator[CatalogueLine]:
    """Parse lines individually; lines with a previous source (`#|`, `#~|`) are comments."""
    is_apart = False
    for number, words, is_tail in _numbered(lines):
        is_obsolete = words.startswith("#~") and not words.startswith("#~|")
        if is_obsolete:
            words = words[2:].lstrip()
        if not words:
            is_apart = True
            continue
        match = KEYWORD.match(words)
        strings = words[match.end() :] if match else words
        text = _unquoted(strings) if STRINGS.fullmatch(strings) else None
        form = int(match[2]) if match and match[2] else None
        yield CatalogueLine(number, words, is_obsolete, is_apart, match[1] if match else "", form, text, is_tail)
        is_apart = False


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield each line with its number, and whether it is a comment cut from the end of a line."""
    for number, line in enumerate(lines, start=1):
        words = line.strip()
        obsolete = "#~" if words.startswith("#~") and not words.startswith("#~|") else ""
        if cut := BEFORE_COMMENT.match(words, len(obsolete)):
            yield number, words[: cut.end(1)].rstrip(), False
            yield number, words[cut.end(1) :], True
        else:
            yield number, words, False


@dataclass
class CatalogueEntry:
    """A message while it is being parsed."""

    line: int = 0
    """Line number of its start; 0 before the first line that is no comment."""
    lines: list[CatalogueLine] = field(default_factory=list)
    """All its lines that are not blank, including comments."""
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """First and last line number of each string, by the keys of `texts`."""
    texts: dict[str, str] = field(default_factory=dict)
    """Strings by keyword; for a plural form, the keyword with a number, padded for sorting."""
    last: str = ""
    """Key in `texts` of the last string."""
    flags: set[str] = field(default_factory=set)
    """Flags of its comments, such as `fuzzy` and `c-format`."""
    is_obsolete: bool = False
    problem: str | None = None

    @property
    def is_fuzzy(self) -> bool:
        """Whether its translation is marked as needing review."""
        return "fuzzy" in self.flags

    @property
    def forms(self) -> list[str]:
        """Translations, in the order of the plural forms."""
        return [self.texts[keyword] for keyword in sorted(self.texts) if keyword.startswith("msgstr")]

    def ends_before(self, line: CatalogueLine) -> bool:
        """Return whether a line is not part of this message; after a mistake, all lines up to a possible start are."""
        if line.begins and line.begins in self.texts:
            return True
        if self.problem is None and not self.forms:
            return False
        return line.is_comment or line.begins is not None or (line.is_apart and not self._place(line))

    def take(self, line: CatalogueLine) -> None:
        """Add a line to the message."""
        if not line.is_tail:
            self.lines.append(line)
        if line.is_comment:
            if line.words.startswith("#,"):
                self.flags.update(re.split(r"[,\s]+", line.words[2:]))
            return
        self.line = self.line or line.number
        self.is_obsolete |= line.is_obsolete
        if place := self._place(line):
            self.texts[place] = self.texts.get(place, "") + (line.text or "")
            self.places[place] = self.places.get(place, (line.number,))[0], line.number
            self.last = place
            return
        if line.text is None:
            problem = "neither a keyword with a string in quotation marks nor a comment"
        else:
            problem = f"{line.keyword or 'a string without keyword'} is where it does not belong"
        where = "" if line.number == self.line else f" on line {line.number}"
        self.problem = self.problem or f"{problem}{where}: {line.words[:SHOWN_CHARACTERS]!r}"

    def _place(self, line: CatalogueLine) -> str:
        """Return the key in `texts` for the strings of a line; empty if it has none, or is not allowed here."""
        there, place = self.texts, line.keyword
        match line.keyword, line.form:
            case _ if line.text is None:
                fits = False
            case "", _:
                # gettext lets a string continue after a blank line; nobody writes that, and it would hide a mistake.
                place, fits = self.last, bool(self.last) and not (line.is_apart and self.forms)
            case "msgctxt", None:
                fits = not there
            case "msgid", None:
                fits = there.keys() <= {"msgctxt"}
            case "msgid_plural" | "msgstr", None:
                fits = "msgid" in there and "msgid_plural" not in there and not self.forms
            case "msgstr", form:
                place = f"msgstr{form:03}"
                fits = "msgid_plural" in there and place not in there
            case _:
                fits = False
        return place if fits else ""

    def message(self) -> Message:
        """Return the parsed message."""
        problem = self.problem
        if problem is None and not self.forms:
            problem = f"there is no msgstr (msgid begins {self.texts.get('msgid', '')[:SHOWN_CHARACTERS]!r})"
        if problem is not None:
            return Message(self.line, "", ("",), problem=problem)
        return Message(
            self.line,
            self.texts["msgid"],
            self.forms,
            plural=self.texts.get("msgid_plural"),
            context=self.texts.get("msgctxt"),
            is_fuzzy=self.is_fuzzy,
            is_obsolete=self.is_obsolete,
        )


def entries_of(lines: Iterable[str]) -> Iterator[CatalogueEntry]:
    """Split lines into messages; a mistake affects only the message that contains it."""
    entry = CatalogueEntry()
    for line in _lines(lines):
        if entry.ends_before(line):
            yield entry
            entry = CatalogueEntry()
        entry.take(line)
    if entry.line:
        yield entry
