"""Safe streaming XML parser: tags and texts in bounded memory; the only parser of XLIFF, TMX and Word files.

No file but the given one is ever opened. A document type is allowed, and its internal subset may describe elements, but
entities are refused: they could make a short file endless or include another one. An external DTD is not loaded. The
size of everything that the parser buffers until it is complete, such as a tag, is limited.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from clearhead.errors import DataError
from clearhead.files.streams import COMPRESSED_STARTS, display_name, open_binary

LANGUAGE = "http://www.w3.org/XML/1998/namespace lang"
"""Name of the attribute `xml:lang`, with its namespace."""

UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) forbids."""
_CHARACTER = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|&#(?:([0-9]{1,8})|x([0-9a-fA-F]{1,8}));")
_PARTIAL_REFERENCE = re.compile(r"&(?:#x?[0-9a-fA-F]{0,8})?\Z")
_INVALID_TOKEN = expat.errors.XML_ERROR_INVALID_TOKEN
_INVALID_REFERENCE = expat.errors.XML_ERROR_BAD_CHAR_REF
MAX_FORBIDDEN = 10_000
"""Maximum number of characters that XML forbids in a file whose units with such characters are left out."""

CHUNK_BYTES = 64 * 1024
MAX_DEPTH = 200
"""Maximum nesting depth of elements."""
MAX_TAG_CHARACTERS = 1_000_000
"""Maximum size of a tag with its attributes, of a comment, and of all declarations of a document type, by default."""
MAX_DECLARATIONS = 1_000
"""Maximum number of attribute declarations; the parser compares each with all others of its element."""
MAX_NAMES = 10_000
"""Maximum number of different names of elements, attributes and namespaces, all of which the parser keeps."""

# UTF-32 first: the byte order mark of UTF-16 is a prefix of that of UTF-32.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
"""First bytes that reveal the encoding before it is declared, and the codec for it."""
DECLARED_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._:-]{0,60})["']""")
ENDS_TOO_EARLY = {
    expat.errors.codes[words]
    for words in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
}


class StartTag(NamedTuple):
    """Start of an element; for an element without content, its `EndTag` follows immediately."""

    name: str
    """Local name, without namespace and prefix."""
    namespace: str
    """Namespace address; empty if there is none."""
    attributes: dict[str, str]
    """Values by name; a name with a prefix is given as namespace and local name, separated by a space."""
    line: int
    """Line number, counted from 1."""
    place: int
    """Position of its start, in bytes of the file's text as UTF-8, without a byte order mark."""


class EndTag(NamedTuple):
    """End of an element."""

    place: int
    """Position of its start; for a self-closing element, the end of its tag."""


XmlEvent = StartTag | EndTag | str
"""A tag, or a piece of text; the text between two tags may be split into several pieces."""


def read_events(path: str, forbidden: list[tuple[int, int]] | None = None) -> Iterator[XmlEvent]:
    """Stream the tags and texts of an XML file.

    The encoding is that of a byte order mark, else the declared one, else UTF-8; Python's codecs decode it. Comments
    and processing instructions are omitted.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        forbidden: Receives the characters that XML forbids, see `without_forbidden`, instead of an error; at most
            `MAX_FORBIDDEN`.

    Raises:
        DataError: During iteration, if the file cannot be read, is not well-formed XML, is not in its declared
            encoding, declares or uses an entity of its own, or exceeds a limit of this module; the message gives the
            line.
    """
    name = display_name(path)
    with open_binary(path) as stream:
        raw = stream.read(CHUNK_BYTES)
        if not raw:
            raise DataError(f"{name} is empty; an XML file has at least one element")
        for start, advice in COMPRESSED_STARTS.items():
            if raw.startswith(start):
                raise DataError(f"{name} {advice}")
        encoding = encoding_of(raw, name)
        decoder = codecs.getincrementaldecoder(encoding)()
        parser = _Parser(name)
        kept, num_bytes = "", 0
        while True:
            try:
                text = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                raise _undecodable(error, encoding, name, parser.num_line_ends) from None
            if forbidden is not None:
                text, kept = _before_partial_reference(kept + text, is_final=not raw)
                text, characters = without_forbidden(text)
                forbidden += ((num_bytes + place, code) for place, code in characters)
                num_bytes += len(text.encode("utf-8", "surrogatepass"))
                if len(forbidden) > MAX_FORBIDDEN:
                    raise DataError(f"{name} has more than {MAX_FORBIDDEN:,} characters that XML forbids")
            problem = parser.feed(text, is_final=not raw)
            yield from parser.take()
            if problem is not None:
                raise problem
            if not raw:
                return
            raw = stream.read(CHUNK_BYTES)


def text_events(
    text: str, name: str, max_tag_characters: int = MAX_TAG_CHARACTERS, advice: str = ""
) -> Iterator[XmlEvent]:
    """Parse the text of an XML file, and yield its tags and texts.

    Args:
        text: The whole text, without a byte order mark.
        name: Name of the file in messages.
        max_tag_characters: See `MAX_TAG_CHARACTERS`.
        advice: What else can be done about a character that XML forbids.

    Raises:
        DataError: If the XML is not well-formed, has entities of its own, or exceeds a limit of this module.
    """
    parser = _Parser(name, max_tag_characters, advice)
    for start in range(0, len(text) + 1, CHUNK_BYTES):
        problem = parser.feed(text[start : start + CHUNK_BYTES], is_final=start + CHUNK_BYTES > len(text))
        yield from parser.take()
        if problem is not None:
            raise problem


def without_forbidden(text: str) -> tuple[str, list[tuple[int, int]]]:
    r"""Return a text with question marks in place of the characters that XML forbids, and where these are.

    A character, or its reference, becomes as many question marks as it has bytes, so that all positions stay the same.

    Returns:
        The text, and the position of each such character, in bytes of the text as UTF-8, with its code.

    >>> without_forbidden("é\x1e &#x1E;&#65;")
    ('é? ??????&#65;', [(2, 30), (4, 30)])
    """
    forbidden: list[tuple[int, int]] = []
    parts: list[str] = []
    at = num_bytes = 0
    for match in _CHARACTER.finditer(text):
        if (code := _forbidden_code(match)) is None:
            continue
        parts += [text[at : match.start()], "?" * len(match[0].encode())]
        forbidden.append((num_bytes + len(parts[-2].encode("utf-8", "surrogatepass")), code))
        num_bytes = forbidden[-1][0] + len(parts[-1])
        at = match.end()
    return "".join([*parts, text[at:]]), forbidden


def _forbidden_code(match: re.Match[str]) -> int | None:
    """Return the code of a character or reference if XML forbids it."""
    decimal, hexadecimal = match.groups()
    if not decimal and not hexadecimal:
        return ord(match[0])
    code = int(decimal or hexadecimal, 10 if decimal else 16)
    return code if code > 0x10FFFF or UNWRITABLE.match(chr(code)) else None


def _before_partial_reference(text: str, *, is_final: bool) -> tuple[str, str]:
    """Divide a text before a reference at its end that may be incomplete."""
    partial = None if is_final else _PARTIAL_REFERENCE.search(text, max(len(text) - 12, 0))
    at = len(text) if partial is None else partial.start()
    return text[:at], text[at:]


def skip_element(events: Iterator[XmlEvent]) -> None:
    """Skip the rest of an element whose start tag has been read, including its end tag."""
    depth = 1
    for event in events:
        if isinstance(event, StartTag):
            depth += 1
        elif isinstance(event, EndTag):
            depth -= 1
            if depth == 0:
                return


class _Parser:
    """An expat parser that refuses entities and enforces the limits of this module.

    Args:
        name: Name of the file in messages.
        max_tag_characters: See `MAX_TAG_CHARACTERS`.
        advice: See `text_events`.
    """

    def __init__(self, name: str, max_tag_characters: int = MAX_TAG_CHARACTERS, advice: str = "") -> None:
        self._name = name
        self._advice = advice
        self._max_tag_characters = max_tag_characters
        self._events: list[XmlEvent] = []
        self._depth = 0
        self._num_declarations = 0
        self._num_silent = 0  # characters since the last event: the size of an incomplete token
        self.num_line_ends = 0
        parser = self._expat = expat.ParserCreate("utf-8", " ")
        parser.buffer_text = True
        parser.specified_attributes = True  # attributes added by a document type could be many and long, in every tag
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._events.append
        parser.CommentHandler = self._heard
        parser.ProcessingInstructionHandler = self._heard
        parser.StartNamespaceDeclHandler = self._heard  # makes the parser's list of names include prefixes
        parser.EntityDeclHandler = self._refuse_entity
        parser.SkippedEntityHandler = self._refuse_reference
        parser.AttlistDeclHandler = self._count_declaration

    def feed(self, text: str, *, is_final: bool) -> DataError | None:
        """Parse more text; return an error instead of raising it, because the events before it are still usable."""
        self._num_silent += len(text)
        try:
            self._expat.Parse(text, is_final)
        except expat.ExpatError as error:
            return self._malformed(error, text)
        except DataError as error:
            return error
        except UnicodeEncodeError:
            return self._error("it holds half of a surrogate pair, not a character")
        self.num_line_ends += text.count("\n")
        if self._events:
            self._num_silent = 0
        if self._num_silent > self._max_tag_characters:
            return self._error(
                f"what begins here is longer than {self._max_tag_characters:,} characters: is a > missing?"
            )
        if len(self._expat.intern) > MAX_NAMES:
            return self._error(f"it has more than {MAX_NAMES:,} different names of elements and attributes")
        return None

    def take(self) -> list[XmlEvent]:
        """Return and clear the events since the last call."""
        events = self._events.copy()
        self._events.clear()
        return events

    def _error(self, words: str) -> DataError:
        return DataError(f"{self._name}, line {self._expat.CurrentLineNumber}: {words}")

    def _malformed(self, error: expat.ExpatError, text: str) -> DataError:
        if error.code in ENDS_TOO_EARLY:
            return DataError(
                f"{self._name}, line {error.lineno}: the XML is cut off, its first element never ends; "
                f"make or fetch the file again"
            )
        words = expat.ErrorString(error.code)
        at = max(error.lineno - 1 - self.num_line_ends, 0)
        line = "".join(text.split("\n")[at : at + 1])
        codes = (code for match in _CHARACTER.finditer(line) if (code := _forbidden_code(match)) is not None)
        code = next(codes, None) if words in (_INVALID_TOKEN, _INVALID_REFERENCE) else None
        if code is not None:
            words = f"this character is not allowed here, for XML forbids U+{code:04X}; remove it{self._advice}"
        elif words == expat.errors.XML_ERROR_INVALID_TOKEN:
            words = "this character is not allowed here; in text, & is written &amp; and < is written &lt;"
        return DataError(f"{self._name}, line {error.lineno}, column {error.offset + 1}: the XML is broken: {words}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} elements are nested in each other")
        namespace, _, local = name.rpartition(" ")
        place = self._expat.CurrentByteIndex
        self._events.append(StartTag(local, namespace, attributes, self._expat.CurrentLineNumber, place))

    def _end(self, _name: str) -> None:
        self._depth -= 1
        self._events.append(EndTag(self._expat.CurrentByteIndex))

    def _heard(self, *_: object) -> None:
        self._num_silent = 0

    def _count_declaration(self, *_: object) -> None:
        self._num_declarations += 1
        if self._num_declarations > MAX_DECLARATIONS:
            raise self._error(f"the document type declares more than {MAX_DECLARATIONS:,} attributes")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise self._error(
            f"the document type declares the entity {name!r}; entities are refused, for they can make a file endless "
            f"or read another one; put what it stands for in its place"
        )

    def _refuse_reference(self, name: str, is_parameter: bool) -> None:
        raise self._error(
            f"{'%' if is_parameter else '&'}{name}; stands for something that is not in the file, and no other file is "
            f"opened; put the text itself in its place"
        )


def encoding_of(start: bytes, name: str) -> str:
    """Return the codec for a file that begins with some bytes; a codec ending in `sig` drops the byte order mark.

    Args:
        start: First bytes of the file, a few hundred or more.
        name: Name of the file in messages.

    Raises:
        DataError: If the declared encoding is unknown, or the first line is not in it.
    """
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            return encoding
    if (match := DECLARED_ENCODING.match(start)) is None:
        return "utf-8"
    declared = match[1].decode("ascii")
    try:
        # Rejects codecs that decode no text, such as zlib, and UTF-16 for a declaration that is readable as ASCII.
        is_true = match[0].decode(declared) == match[0].decode("ascii")
        codecs.getincrementaldecoder(declared)
    except LookupError:
        raise DataError(
            f"{name}, line 1: the encoding {declared!r} is not known; convert the file to UTF-8, also in this line"
        ) from None
    except UnicodeError:
        is_true = False
    if not is_true:
        raise DataError(f"{name}, line 1: the file says that it is in {declared}, but this line is not")
    return declared


def _undecodable(error: UnicodeDecodeError, encoding: str, name: str, num_line_ends: int) -> DataError:
    before = error.object[: error.start].decode(error.encoding, "replace")
    encoding = encoding.removesuffix("-sig").upper()
    return DataError(
        f"{name}, line {num_line_ends + before.count(chr(10)) + 1}: the byte 0x{error.object[error.start]:02x} is not "
        f"valid {encoding}, which is what the file was taken for; say in its first line what it is in, for example "
        f'<?xml version="1.0" encoding="ISO-8859-1"?>'
    )
