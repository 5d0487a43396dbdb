"""Subtitle documents, SubRip (`.srt`) and WebVTT (`.vtt`): the text of each cue is a segment.

Times, settings, notes and styles are unchanged. The lines of a cue are joined with spaces, except before a dash, which
begins the words of another speaker. Markup that encloses the whole cue, or every one of its lines, is removed from the
segment and restored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape

from clearhead.formats.document import Document, Filling, Segment
from clearhead.formats.file_text import FileText, Line
from clearhead.formats.subtitles.cues import read_cues
from clearhead.formats.wrapping import balanced, unwrapped, width_of

LINE_COLUMNS = 42
"""Maximum line length that broadcasters allow in most languages."""

USUAL_LINES = 2
"""Lines that a cue may have, even if it had fewer, when a line would be too long otherwise."""

MOST_TAGS = 9
"""Maximum nesting of markup that is separated from the text it encloses."""

_DASH = re.compile(r"[-–—]")

_TAG = re.compile(r"<(/?)([\w:-]*+)[^<>]*+>|\{\\[^{}]*+\}")
_OPENING = re.compile(rf"(?:{_TAG.pattern})\s*")
_UNCLOSED = {"v", "c", "lang"}
"""WebVTT tags that the end of the cue closes implicitly."""


@dataclass(frozen=True, slots=True)
class _Cue:
    """Text of a cue, with its position and markup in the file."""

    start: int
    end: int
    line_end: str
    """Line ending between its lines."""
    text: str
    num_lines: int
    columns: int
    """Width of its longest line, in columns."""
    around: tuple[str, str]
    """Markup before and after the whole text."""
    around_lines: tuple[str, str]
    """Markup before and after each line."""
    is_escaped: bool
    """Whether `&` and `<` are written as entities."""

    def written(self, text: str) -> str:
        """Return a translation in the syntax of the file, on as many lines as the original had."""
        speakers = [part for line in text.splitlines() if (part := line.strip())] or [""]
        # `-->` would be parsed as the times of a cue.
        speakers = [self._escaped(part).replace("-->", "->") for part in speakers]
        lines = [line for part in speakers for line in self._on_lines(part, len(speakers))]
        opening, closing = self.around_lines
        return self.around[0] + self.line_end.join(opening + line + closing for line in lines) + self.around[1]

    def _escaped(self, text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;") if self.is_escaped else text

    def _on_lines(self, text: str, num_speakers: int) -> list[str]:
        count = max(1, self.num_lines // num_speakers)
        lines = balanced(text, count)
        if max(map(width_of, lines)) > max(self.columns, LINE_COLUMNS):
            lines = balanced(text, max(count, USUAL_LINES // num_speakers))
        return lines


class Subtitles(Document):
    """A subtitle file; its segments are the cues that have text."""

    def __init__(self, source: FileText, *, is_webvtt: bool) -> None:
        """Find the cues.

        Raises:
            DataError: If a SubRip file has text but no cue, or a time is malformed.
        """
        self.format = "WebVTT subtitles" if is_webvtt else "SubRip subtitles"
        self._source = source
        texts = _texts(source, is_webvtt=is_webvtt)
        self._cues = [cue for lines in texts if (cue := _cue(source, lines, is_webvtt=is_webvtt)) is not None]
        self.segments = [Segment(cue.text, source.line(cue.start)) for cue in self._cues]

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations in its cues, each on as many lines as the original.

        Raises:
            DataError: If a translation contains half of a surrogate pair.
        """
        return self._source.replaced(
            (cue.start, cue.end, cue.written(filling.text))
            for cue, filling in zip(self._cues, fillings, strict=True)
            if filling is not None
        )


def read_subrip(path: str) -> Subtitles:
    """Read a `.srt` file.

    Raises:
        DataError: If the file cannot be read, is too large, or has text but no cue, or a time is malformed.
    """
    return Subtitles(FileText.read(path), is_webvtt=False)


def read_webvtt(path: str) -> Subtitles:
    """Read a `.vtt` file.

    Raises:
        DataError: If the file cannot be read, is too large, does not begin with WEBVTT, or a time is malformed.
    """
    return Subtitles(FileText.read(path), is_webvtt=True)


def _texts(source: FileText, *, is_webvtt: bool) -> Iterator[list[Line]]:
    """Yield the text lines of every cue; in SubRip, players also show the text after a blank line.

    Raises:
        DataError: If a SubRip file has text but no cue, or a time is malformed.
    """
    lines = list(source.lines())
    written = (source.text[line.start : line.end] for line in lines)
    for cue in read_cues(written, source.path, is_webvtt=is_webvtt, refuse_stray=False):
        for texts in cue.texts[:1] if is_webvtt else cue.texts:
            if texts:
                yield [lines[number - 1] for number, _ in texts]


def _cue(source: FileText, lines: Sequence[Line], *, is_webvtt: bool) -> _Cue | None:
    """Return the cue of some lines; None if they contain only markup."""
    written = [source.text[line.start : line.end].strip() for line in lines]
    peeled = [_peeled(line) for line in written]
    around = around_lines = ("", "")
    if len(peeled) > 1 and any(peeled[0][0]) and len({outer for outer, _ in peeled}) == 1:
        around_lines, texts = peeled[0][0], [inner for _, inner in peeled]
    else:
        around, inner = _peeled("\n".join(written))
        texts = [text for line in inner.split("\n") if (text := line.strip())]
    if not any(texts):
        return None
    is_escaped = is_webvtt and not any(map(_TAG.search, texts))
    speakers: list[list[str]] = []
    for text in map(unescape, texts) if is_escaped else texts:
        if not speakers or _DASH.match(text):
            speakers.append([])
        speakers[-1].append(text)
    return _Cue(
        start=source.text.index(written[0], lines[0].start),
        end=source.text.index(written[-1], lines[-1].start) + len(written[-1]),
        line_end=source.line_end,
        text="\n".join(map(unwrapped, speakers)),
        num_lines=len(texts),
        columns=max(map(width_of, texts)),
        around=(around[0].replace("\n", source.line_end), around[1].replace("\n", source.line_end)),
        around_lines=around_lines,
        is_escaped=is_escaped,
    )


def _peeled(text: str) -> tuple[tuple[str, str], str]:
    """Return the markup before and after a text that encloses all of it, and the text between."""
    opening = closing = ""
    for _ in range(MOST_TAGS):
        tag = _OPENING.match(text)
        if tag is None or tag[1]:
            break
        name, rest = (tag[2] or "").lower(), text[tag.end() :]
        if name and not name[0].isdigit():  # WebVTT times and SubRip positions have no closing tag
            last = rest.rfind("<")
            of_name = [one for one in _TAG.finditer(rest) if (one[2] or "").lower() == name]
            if of_name and of_name[-1].start() == last and _TAG.fullmatch(rest.rstrip(), last) and _closes(of_name):
                rest, behind = rest[:last].rstrip(), rest[len(rest[:last].rstrip()) :]
                closing = behind + closing
            elif of_name or name not in _UNCLOSED:
                break
        opening, text = opening + tag[0], rest
    return (opening, closing), text


def _closes(tags: Sequence[re.Match[str]]) -> bool:
    """Return whether the last of these tags of one name closes an opening tag that precedes them all."""
    depth = 1
    for tag in tags[:-1]:
        depth += -1 if tag[1] else 1
        if not depth:
            return False
    return depth == 1 and bool(tags[-1][1])
