r"""gettext documents (`.po`): messages to translate; translations are filled in and marked as fuzzy.

The parser is `formats.gettext.po`. Only the lines of `msgstr`, of flags and of notes are written, in gettext's own
layout. All other lines stay, in the encoding that the header declares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from clearhead.errors import DataError
from clearhead.files.streams import UTF8_MARK
from clearhead.formats.document import (
    FLAG_NOTE,
    MEMORY_NOTE,
    Document,
    DocumentSegment,
    Filling,
    LengthLimit,
    Splice,
    spliced,
)
from clearhead.formats.file_text import read_bytes
from clearhead.formats.gettext.catalogue import PLACEHOLDER, forms_of
from clearhead.formats.gettext.po import STRING, CatalogueEntry, decoded_catalogue, entries_of, quoted, with_line_feeds
from clearhead.formats.wrapping import width_of
from clearhead.text.format_strings import checked_format, format_of
from clearhead.text.languages import plural_forms

MOST_COLUMNS = 79
"""Maximum width of a line with its quotation marks, as gettext wraps; a longer word gets a line of its own."""
_MOST_NUMBERS, _SELDOM = 1_001, 5
"""Numbers from 0 on for which gettext evaluates the rule of plural forms, and how many of them are seldom."""
_HAS_RULE = re.compile(r"nplurals\s*=\s*[0-9]+\s*;\s*plural\s*=")
"""A rule of plural forms; a template has placeholders in its place."""
_PLACEHOLDER = re.compile(rf"charset=\s*({PLACEHOLDER})\b".encode(), re.IGNORECASE)
_WORD = re.compile(r"[^ ]* *\n?")
_TO_LAST_STRING = re.compile(rf'[^"]*+(?:{STRING}(?:[ \t]++(?=["\r\n]|\Z))?+)++', re.DOTALL)
"""A line up to the end of its strings, and to its own end unless a comment follows."""
_MAX_LENGTH = re.compile(r"#[.,](?:.*[\s,])?max-length:\s*([0-9]{1,9})\b")
"""A comment that limits the characters of a translation, as Pootle and Weblate write it."""
_ONLY_FUZZY = re.compile(r"#\||#,(?:.*[,\s])?fuzzy(?:[,\s]|$)")
_TRANSLATORS_COMMENT = re.compile(r"#(?![.:,|~])")


class _Plural(NamedTuple):
    """What the header says of the plural form for one thing."""

    form_of_one: int
    """Its index, counted from 0."""
    is_often: bool
    """Whether it is also the form of many other numbers, such as 21 in Russian; gettext then requires that it has the
    arguments of the plural."""

    @classmethod
    def of(cls, rule: str) -> _Plural:
        forms = forms_of(rule, range(_MOST_NUMBERS))
        return cls(forms[1], forms.count(forms[1]) > _SELDOM)

    def segments(self, first: int, texts: Mapping[str, str], format: str, num_forms: int) -> list[int]:
        """Return the index of the segment that each plural form translates.

        Args:
            first: Index of the segment of the singular; that of the plural follows.
            texts: Singular and plural by their keywords.
            format: As in `DocumentSegment`.
            num_forms: Number of plural forms.
        """
        singular = self.form_of_one if self.form_of_one < num_forms else 0
        # The singular `a file` does not do for 21 files, and in a language with a single form for no number.
        lacks = self.is_often and format and checked_format(texts["msgid_plural"], texts["msgid"], format)[1]
        return [first + (place != singular or num_forms == 1 or bool(lacks)) for place in range(num_forms)]


class _Form(NamedTuple):
    """A translation of a message; a message with a plural has one per plural form."""

    keyword: str
    """Keyword as written, such as `msgstr[1]`."""
    lines: tuple[int, int]
    """First and last line, counted from 1."""
    segment: int
    """Index of the segment that it translates."""
    text: str
    """Its text in the file; empty if it has none yet."""

    @property
    def is_blank(self) -> bool:
        """Whether it has no text yet."""
        return not self.text


class _Message(NamedTuple):
    """A message that is not obsolete."""

    first: int
    """Index of the segment of its source; the segment of its plural follows."""
    forms: Sequence[_Form]
    is_fuzzy: bool
    flags: int
    """Line of its flags, counted from 1; 0 if it has none."""
    begins: int
    """Line before which new flags are inserted."""
    old_notes: Sequence[int]
    """Lines of notes from earlier translations."""
    only_fuzzy: Sequence[int]
    """Lines that mark it as fuzzy, and those of its previous source, which gettext keeps while it is."""
    notes: int
    """Line before which new notes are inserted."""
    texts: Mapping[str, str]
    """Its strings, by keyword."""
    format: str
    """As in `DocumentSegment`."""
    most_columns: float
    """Maximum width of its lines, see `MOST_COLUMNS`; infinite with the flag `no-wrap`."""


class GettextCatalogue(Document):
    """A `.po` catalogue; its segments are the sources of its active messages, singular and plural separately."""

    format = "gettext catalogue"
    keeps_finished = True

    def __init__(self, data: bytes, name: str) -> None:
        """Find the messages.

        Args:
            data: All bytes of the file.
            name: Name of the file in messages.

        Raises:
            DataError: If the file is not in its encoding, or a message cannot be parsed; the error gives the line.
        """
        text, self._charset = decoded_catalogue(data, name)
        self._data, self._name = data, name
        mark_bytes = len(UTF8_MARK) if data.startswith(UTF8_MARK) else 0
        # Starts of all lines, and the end. In every encoding that `charset_of` accepts, a line feed is the same byte.
        ends = re.finditer(b"\n", with_line_feeds(data))
        self._starts = [mark_bytes, *(match.end() for match in ends), len(data)]
        if len(self._starts) - 2 != text.count("\n") or "a".encode(self._charset) != b"a":
            raise DataError(f"{name} is in {self._charset}, which cannot be written line by line; convert it to UTF-8")
        self.segments: list[DocumentSegment] = []
        self._messages: list[_Message] = []
        self._placeholder: tuple[int, int] | None = None
        """Range of bytes in which a template has a placeholder for the encoding."""
        self._header: CatalogueEntry | None = None
        plural = _Plural.of("")
        for entry in entries_of(text.split("\n")):
            message = entry.message()
            if message.problem is not None:
                raise DataError(f"{name}, line {message.place}: {message.problem}")
            if message.is_header:
                if self._header is None:
                    self._header, plural = entry, _Plural.of(message.fields().get("plural-forms", ""))
                    self._placeholder = self._placeholder_in(entry)
                    self.target_languages = [*filter(None, [message.fields().get("language")])]
            elif not message.is_obsolete:
                self._add(entry, plural)

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        r"""Return the file's bytes with the translations, their messages marked as fuzzy, and notes as comments.

        A message whose translations are all reviewed is not fuzzy.

        A translation begins or ends with a line feed if and only if its source does, as `msgfmt --check` requires. A
        template gets its encoding when a translation needs one, and the language of the translations with its plural
        forms.

        Raises:
            DataError: If a translation contains a character that the file's encoding lacks, or a NUL.
        """
        fields = self._new_fields() if any(filling is not None for filling in fillings) else {}
        rule = fields.get("Plural-Forms", "")
        splices: list[Splice] = []
        for message in self._messages:
            written = [
                (form, filling)
                for form in message.forms
                if (filling := fillings[form.segment]) is not None and not self._stays(message, form)
            ]
            if rule and "msgid_plural" in message.texts and all(form.is_blank for form in message.forms):
                splices.append(self._new_forms(message, rule, fillings))
            else:
                splices += (self._strings(message, form, filling) for form, filling in written)
            notes = dict.fromkeys(note for _, filling in written for note in filling.note.splitlines())
            if written:
                splices += self._notes(message, list(notes))
            is_reviewed = all(filling.is_reviewed for _, filling in written)
            if is_reviewed and message.is_fuzzy and len(written) == len(message.forms):
                splices += self._without_flag(message)
            elif not (is_reviewed or message.is_fuzzy):
                splices.append(self._flag(message))
        needs_charset = self._placeholder is not None and not all(splice.replacement.isascii() for splice in splices)
        if self._header is not None and fields:
            splices.append(self._header_with(self._header, fields, self._charset if needs_charset else PLACEHOLDER))
        elif self._placeholder is not None and needs_charset:
            splices.append(Splice(*self._placeholder, self._charset.encode()))
        return spliced(self._data, sorted(splices, key=lambda splice: splice.start))

    def _new_fields(self) -> dict[str, str]:
        """Return the fields of the header that only a template lacks, for the language of the translations."""
        said = {} if self._header is None else self._header.message().fields()
        language = said.get("language") or self.language.replace("-", "_")
        fields = {"Language": language} if said.get("language") == "" != language else {}
        has_plurals = any("msgid_plural" in message.texts for message in self._messages)
        if said and (has_plurals or "plural-forms" in said) and not _HAS_RULE.search(said.get("plural-forms", "")):
            fields["Plural-Forms"] = plural_forms(language)
        return {name: value for name, value in fields.items() if value}

    def _header_with(self, header: CatalogueEntry, fields: Mapping[str, str], charset: str) -> Splice:
        """Return the change of the header that sets fields, and the encoding in place of its placeholder."""
        text = header.texts["msgstr"]
        for name, value in fields.items():
            line = f"{name}: {value}\n"
            text, count = re.subn(rf"^{name}:.*\n?", line, text, flags=re.IGNORECASE | re.MULTILINE)
            text += "" if count else line
        text = re.sub(rf"(charset=\s*){PLACEHOLDER}\b", rf"\g<1>{charset}", text, flags=re.IGNORECASE)
        lines = ['msgstr ""', *map(quoted, re.findall(r"[^\n]*\n|[^\n]+", text))]
        return self._lines(header.places["msgstr"], lines, header.line)

    def _new_forms(self, message: _Message, rule: str, fillings: Sequence[Filling | None]) -> Splice:
        """Return the change that gives an untranslated message the plural forms of a rule."""
        number = int(rule.partition("=")[2].partition(";")[0])
        lines: list[str] = []
        for form, segment in enumerate(_Plural.of(rule).segments(message.first, message.texts, message.format, number)):
            filling = fillings[segment]
            text = "" if filling is None else self._text(message, filling)
            lines += _string_lines(f"msgstr[{form}]", text, message.most_columns)
        places = message.forms[0].lines[0], message.forms[-1].lines[1]
        return self._lines(places, lines, self.segments[message.first].line)

    def _placeholder_in(self, header: CatalogueEntry) -> tuple[int, int] | None:
        first, last = next(lines for key, lines in header.places.items() if key.startswith("msgstr"))
        start = self._starts[first - 1]
        match = _PLACEHOLDER.search(self._data[start : self._starts[last]])
        return match and (start + match.start(1), start + match.end(1))

    def _add(self, entry: CatalogueEntry, plural: _Plural) -> None:
        """Add the segments of a message."""
        texts, format = entry.texts, format_of(entry.flags)
        keys = sorted(key for key in entry.texts if key.startswith("msgstr"))
        at = len(self.segments)
        forms = [_Form("msgstr", entry.places[keys[0]], at, entry.texts[keys[0]])]
        if "msgid_plural" in texts:
            forms = [
                _Form(f"msgstr[{int(key.removeprefix('msgstr'))}]", entry.places[key], segment, entry.texts[key])
                for key, segment in zip(keys, plural.segments(at, texts, format, len(keys)), strict=True)
            ]
        most = next(filter(None, (_MAX_LENGTH.match(line.words) for line in entry.lines)), None)
        for place, source in enumerate(key for key in ("msgid", "msgid_plural") if key in entry.texts):
            there = [entry.texts[key] for key, form in zip(keys, forms, strict=True) if form.segment == at + place]
            there = there or [entry.texts[keys[0]]]
            is_finished = all(there) and not entry.is_fuzzy
            line, text = entry.places[source][0], entry.texts[source]
            place_name = f"entry {len(self._messages) + 1}, line {line}"
            segment = DocumentSegment(text, line, there[-1], is_finished, format, place=place_name)
            limit = most and LengthLimit(len(self.segments), int(most[1]))
            self.segments.append(self.watched(replace(segment, context=texts.get("msgctxt"), limit=limit)))
        flags = next((line.number for line in entry.lines if line.words.startswith("#,")), 0)
        # gettext writes flags after other comments, and before the previous source.
        begins = next(row.number for row in entry.lines if not row.is_comment or row.words.startswith("#|"))
        # Comments of translators come first; notes are added at their end.
        notes = next(line.number for line in entry.lines if not _TRANSLATORS_COMMENT.match(line.words))
        kinds = f"# {MEMORY_NOTE}, ", f"# {FLAG_NOTE}, "
        old_notes = [line.number for line in entry.lines if line.words.startswith(kinds)]
        only_fuzzy = [line.number for line in entry.lines if _ONLY_FUZZY.match(line.words)]
        columns = math.inf if "no-wrap" in entry.flags else MOST_COLUMNS
        where = flags, begins, old_notes, only_fuzzy, notes
        self._messages.append(_Message(at, forms, entry.is_fuzzy, *where, texts, format, columns))

    def _stays(self, message: _Message, form: _Form) -> bool:
        """Return whether a form keeps its finished translation, because only other forms of its segment lack one."""
        return not (form.is_blank or message.is_fuzzy or self.segments[form.segment].is_finished)

    def _text(self, message: _Message, filling: Filling) -> str:
        return _with_line_feeds_of(self.segments[message.first].text, filling.text)

    def _strings(self, message: _Message, form: _Form, filling: Filling) -> Splice:
        """Return the change of the lines of a translation."""
        lines = _string_lines(form.keyword, self._text(message, filling), message.most_columns)
        return self._lines(form.lines, lines, self.segments[form.segment].line)

    def _lines(self, places: tuple[int, int], written: Iterable[str], line: int) -> Splice:
        """Return the change of some lines, whose last may end with a comment.

        Args:
            places: First and last line, counted from 1.
            written: The new lines.
            line: Line number in messages.
        """
        first, last = places
        start, end = self._starts[first - 1], self._starts[last]
        line_end = _line_end(self._data[start : self._starts[first]])
        last_line = self._data[self._starts[last - 1] : end].decode(self._charset)
        strings = _TO_LAST_STRING.match(last_line)
        assert strings is not None
        rest = last_line[strings.end() :].encode(self._charset)
        lines = [self._encoded(value, line) for value in written]
        return Splice(start, end - len(rest), line_end.join(lines))

    def _notes(self, message: _Message, notes: Sequence[str]) -> Iterator[Splice]:
        """Yield the changes that replace old notes by new ones."""
        for number in message.old_notes:
            yield Splice(self._starts[number - 1], self._starts[number], b"")
        if notes:
            start, end = self._starts[message.notes - 1 : message.notes + 1]
            line_end = _line_end(self._data[start:end]).decode()
            written = "".join(f"# {note}{line_end}" for note in notes)
            # Characters of a note that the encoding lacks are escaped: a note must not prevent writing the translation.
            yield Splice(start, start, written.encode(self._charset, "backslashreplace"))

    def _flag(self, message: _Message) -> Splice:
        """Return the change that marks a message as fuzzy."""
        number = message.flags or message.begins
        start, end = self._starts[number - 1 : number + 1]
        line = self._data[start:end]
        if message.flags:
            at = line.index(b"#,") + 2
            return Splice(start + at, start + at, b" fuzzy," if line[at:].strip() else b" fuzzy")
        return Splice(start, start, b"#, fuzzy" + _line_end(line))

    def _without_flag(self, message: _Message) -> Iterator[Splice]:
        """Yield the changes that mark a message as not fuzzy, without its previous source."""
        for number in message.only_fuzzy:
            start, end = self._starts[number - 1 : number + 1]
            line = self._data[start:end]
            others = [flag for flag in re.split(rb"[,\s]+", line[2:]) if flag not in (b"", b"fuzzy")]
            has_others = others and line.startswith(b"#,")
            yield Splice(start, end, b"#, " + b", ".join(others) + _line_end(line) if has_others else b"")

    def problem_of_edit(self, number: int, text: str) -> str:
        """Return why an edited translation cannot be written; see `Document.problem_of_edit`."""
        message, forms = next(
            (one, [form for form in one.forms if form.segment == number])
            for one in reversed(self._messages)
            if one.first <= number
        )
        if len({form.text for form in forms}) > 1 and not message.is_fuzzy:
            return f"it has {len(forms)} plural forms that differ, and here is one text; edit them in the catalogue"
        try:
            self._encoded(text, self.segments[number].line)
        except DataError as error:
            return str(error)
        return ""

    def _encoded(self, written: str, line: int) -> bytes:
        if "\0" in written:
            raise DataError(f"{self._name}, line {line}: the translation holds a NUL, which no catalogue can")
        try:
            return written.encode(self._charset)
        except UnicodeEncodeError as error:
            sign = written[error.start]
            advice = f"U+{ord(sign):04X} ({sign}), which {self._charset} lacks; convert the file: msgconv -t UTF-8"
            holds = "half of a surrogate pair, no character" if "\ud800" <= sign <= "\udfff" else advice
            raise DataError(f"{self._name}, line {line}: the translation holds {holds}") from None


def read_po(path: str) -> GettextCatalogue:
    """Read a `.po` catalogue.

    Raises:
        DataError: If the file cannot be read, is too large, is not in its declared encoding, or has a message that
            cannot be parsed.
    """
    return GettextCatalogue(read_bytes(path), path)


def _line_end(line: bytes) -> bytes:
    r"""Return the end of a line; `\n` if it has none.

    >>> _line_end(b"a\r\n"), _line_end(b"a")
    (b'\r\n', b'\n')
    """
    return line[len(line.rstrip(b"\r\n")) :] or b"\n"


def _with_line_feeds_of(source: str, text: str) -> str:
    r"""Return a text with line feeds at its start and end exactly as in its source; an empty text stays empty.

    >>> _with_line_feeds_of("ja\n", "yes"), _with_line_feeds_of("ja", "\nyes")
    ('yes\n', 'yes')
    """
    if text.startswith("\n") != source.startswith("\n"):
        text = text.lstrip("\n") if text.startswith("\n") else text and f"\n{text}"
    if text.endswith("\n") != source.endswith("\n"):
        text = text.rstrip("\n") if text.endswith("\n") else text and f"{text}\n"
    return text


def _string_lines(keyword: str, text: str, most_columns: float = MOST_COLUMNS) -> Iterator[str]:
    r"""Yield the lines of a keyword and its text, which begins a new line behind each of its line feeds.

    >>> list(_string_lines("msgstr", "ja\n")), list(_string_lines("msgstr", "ja\nnein"))
    (['msgstr "ja\\n"'], ['msgstr ""', '"ja\\n"', '"nein"'])
    """
    whole = f"{keyword} {quoted(text)}"
    if "\n" not in text[:-1] and width_of(whole) <= most_columns:
        yield whole
        return
    yield f'{keyword} ""'
    for part in re.findall(r"[^\n]*\n|[^\n]+", text):
        line = ""
        for word in _WORD.findall(part):
            if line and word and width_of(quoted(line + word)) > most_columns:
                yield quoted(line)
                line = ""
            line += word
        yield quoted(line)
