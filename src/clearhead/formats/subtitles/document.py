"""Subtitles: SubRip (`.srt`) and WebVTT (`.vtt`), a segment a cue; times, settings, notes and styles stay.

The lines of a cue are joined with a space, but where one begins with a dash another person speaks, and the break stays.
Markup that encloses the whole cue, or every one of its lines, is left out of the segment and put back.
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

__all__ = ["Subtitles", "read_subrip", "read_webvtt"]

LINE_COLUMNS = 42
"""Longest line that broadcasters allow in most languages."""

USUAL_LINES = 2
"""Lines that a cue may have also if it had fewer before, where a line would be too long otherwise."""

MOST_TAGS = 9
"""Levels of markup around a text that are told from it."""

_DASH = re.compile(r"[-–—]")

_TAG = re.compile(r"<(/?)([\w:-]*+)[^<>]*+>|\{\\[^{}]*+\}")
_OPENING = re.compile(rf"(?:{_TAG.pattern})\s*")
_UNCLOSED = {"v", "c", "lang"}
"""Tags of WebVTT that the end of the cue closes."""


@dataclass(frozen=True, slots=True)
class _Cue:
    """The text of a cue, as it is read and as it stands in the file."""

    start: int
    end: int
    line_end: str
    """What ends its lines."""
    text: str
    num_lines: int
    columns: int
    """Of its longest line."""
    around: tuple[str, str]
    """Markup before and behind all of it."""
    around_lines: tuple[str, str]
    """Markup before and behind each of its lines."""
    is_escaped: bool
    """Whether `&` and `<` must be written as entities."""

    def written(self, text: str) -> str:
        """Return a translation as it stands in the file, on as many lines as the text had."""
        speakers = [part for line in text.splitlines() if (part := line.strip())] or [""]
        # What looks like a time would begin another cue.
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
    """A file of cues; its segments are those that have a text."""

    def __init__(self, source: FileText, *, is_webvtt: bool) -> None:
        """Find the cues.

        Raises:
            DataError: If there are none where there should be, or a time cannot be read.
        """
        self.format = "WebVTT subtitles" if is_webvtt else "SubRip subtitles"
        self._source = source
        texts = _texts(source, is_webvtt=is_webvtt)
        self._cues = [cue for lines in texts if (cue := _cue(source, lines, is_webvtt=is_webvtt)) is not None]
        self.segments = [Segment(cue.text, source.line(cue.start)) for cue in self._cues]

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file with translations in its cues, each on as many lines as its text had.

        Raises:
            DataError: If a translation holds half of a surrogate pair.
        """
        return self._source.replaced(
            (cue.start, cue.end, cue.written(filling.text))
            for cue, filling in zip(self._cues, fillings, strict=True)
            if filling is not None
        )


def read_subrip(path: str) -> Subtitles:
    """Read a `.srt` file.

    Raises:
        DataError: If it cannot be read, is too large, or holds no cues, or a time cannot be read.
    """
    return Subtitles(FileText.read(path), is_webvtt=False)


def read_webvtt(path: str) -> Subtitles:
    """Read a `.vtt` file.

    Raises:
        DataError: If it cannot be read, is too large, does not begin with WEBVTT, or a time cannot be read.
    """
    return Subtitles(FileText.read(path), is_webvtt=True)


def _texts(source: FileText, *, is_webvtt: bool) -> Iterator[list[Line]]:
    """Yield the lines of text of every cue; SubRip's players also show what follows a blank line.

    Raises:
        DataError: If there is no cue, or a time cannot be read.
    """
    lines = list(source.lines())
    written = (source.text[line.start : line.end] for line in lines)
    for cue in read_cues(written, source.path, is_webvtt=is_webvtt, refuse_stray=False):
        for texts in cue.texts[:1] if is_webvtt else cue.texts:
            if texts:
                yield [lines[number - 1] for number, _ in texts]


def _cue(source: FileText, lines: Sequence[Line], *, is_webvtt: bool) -> _Cue | None:
    """Return the cue of some lines; None if they hold markup alone."""
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
    """Return the markup before and behind a text that encloses all of it, and the text between."""
    opening = closing = ""
    for _ in range(MOST_TAGS):
        tag = _OPENING.match(text)
        if tag is None or tag[1]:
            break
        name, rest = (tag[2] or "").lower(), text[tag.end() :]
        if name and not name[0].isdigit():  # others are what WebVTT's times and SubRip's positions are: for themselves
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
    """Tell whether the last of some tags of one name is the first to close the one that stood before them all."""
    depth = 1
    for tag in tags[:-1]:
        depth += -1 if tag[1] else 1
        if not depth:
            return False
    return depth == 1 and bool(tags[-1][1])
