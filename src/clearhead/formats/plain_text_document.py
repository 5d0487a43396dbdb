"""Plain text in paragraphs: lines up to a blank line are one segment; its translation is wrapped like the original.

A list item is a paragraph too. The following stay unchanged: indentation, list markers, quote marks of e-mail, lines
without a letter or digit (such as rules), and all white space between paragraphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clearhead.formats.document import Document, DocumentSegment, Filling
from clearhead.formats.file_text import FileText
from clearhead.formats.markup_start import refuse_markup
from clearhead.formats.wrapping import unwrapped, width_of, wrapped
from clearhead.text.lines import on_one_line

_INDENTATION = re.compile(r"\s*+(?:>\s*+)*+")
_MARKER = re.compile(r"(?:[-*+•‣◦·–—]|\(?[0-9]{1,3}[.)]|\(?[a-z]\))\s++")


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """Consecutive lines that form one text."""

    start: int
    """Position after the indentation and marker of the first line."""
    end: int
    """Position after the last character that is not white space."""
    texts: list[str]
    """Text of each line."""
    before: list[str]
    """Prefix of each line: indentation, and on the first line the list marker."""

    @property
    def text(self) -> str:
        """The whole paragraph on one line."""
        return unwrapped(self.texts)

    def written(self, text: str, line_end: str) -> str:
        """Wrap a translation to the width of the longest original line; a paragraph of one line stays on one line.

        No line begins where it would be read as another paragraph, such as before a dash.
        """
        text = on_one_line(text.rstrip())
        if len(self.texts) == 1:
            return text
        columns = max(width_of(before + own) for before, own in zip(self.before, self.texts, strict=True))
        rest = width_of(self.before[-1])
        lines = _in_one_paragraph(wrapped(text, columns - rest, first=width_of(self.before[0]) - rest))
        before = ["", *self.before[1:], *[self.before[-1]] * len(lines)]
        return line_end.join(start + line for start, line in zip(before, lines, strict=False))


class Paragraphs(Document):
    """A text file; its segments are its paragraphs."""

    format = "plain text in paragraphs"

    def __init__(self, source: FileText) -> None:
        """Find the paragraphs."""
        self._source = source
        self._paragraphs = list(_paragraphs(source))
        self.segments = [self.watched(DocumentSegment(part.text, source.line(part.start))) for part in self._paragraphs]

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations in place of its paragraphs.

        Raises:
            DataError: If a translation contains half of a surrogate pair.
        """
        line_end = self._source.line_end
        return self._source.replaced(
            (paragraph.start, paragraph.end, paragraph.written(filling.text, line_end))
            for paragraph, filling in zip(self._paragraphs, fillings, strict=True)
            if filling is not None
        )


def read_paragraphs(path: str) -> Paragraphs:
    """Read a text file.

    Args:
        path: The file; `-` is standard input.

    Raises:
        DataError: If the file cannot be read, is too large, is not text, or begins with markup.
    """
    source = FileText.read(path)
    refuse_markup(source.text, path)
    return Paragraphs(source)


def _paragraphs(source: FileText) -> Iterator[_Paragraph]:
    current: list[tuple[int, str, str]] = []  # for each line: start of its text, its prefix, and the text
    for line in source.lines():
        before, text, is_item = _parts(source.text[line.start : line.end].rstrip())
        is_other = bool(current) and (is_item or not text or before.count(">") != current[-1][1].count(">"))
        if is_other:
            yield _paragraph(current)
            current = []
        if text:
            current.append((line.start + len(before), before, text))
    if current:
        yield _paragraph(current)


def _paragraph(lines: Sequence[tuple[int, str, str]]) -> _Paragraph:
    starts, before, texts = (list(column) for column in zip(*lines, strict=True))
    return _Paragraph(starts[0], starts[-1] + len(texts[-1]), texts, before)


def _in_one_paragraph(lines: Sequence[str]) -> list[str]:
    """Join each line that would begin another paragraph, such as one that begins with a dash, to the line before it."""
    before, text, _ = _parts(lines[0])
    joined, is_text, is_quoted = [[lines[0]]], bool(text), ">" in before
    for line in lines[1:]:
        before, text, is_item = _parts(line)
        if is_text and text and not (is_item or is_quoted or ">" in before):
            joined.append([line])
        else:
            joined[-1].append(line)
            is_text |= bool(text)
    return [unwrapped(whole) for whole in joined]


def _parts(written: str) -> tuple[str, str, bool]:
    """Return the prefix of a line, its text, and whether it begins a list item.

    A line without a letter or digit has no text.
    """
    if not any(map(str.isalnum, written)):
        return written, "", False
    indentation = _INDENTATION.match(written)
    assert indentation is not None
    marker = _MARKER.match(written, indentation.end())
    at = marker.end() if marker is not None else indentation.end()
    return written[:at], written[at:], marker is not None
