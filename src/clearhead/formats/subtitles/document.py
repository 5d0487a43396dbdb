"""Subtitle documents, SubRip (`.srt`) and WebVTT (`.vtt`): the text of each cue is a segment.

Times, settings, notes and styles are unchanged. The lines of a cue are joined with spaces, except before a dash, which
begins the words of another speaker, as `>>`, a name in capitals (`MARY:`) or a voice of WebVTT does. Markup that
encloses the words of a speaker, or every one of their lines, is removed from the segment and restored; other markup is
a numbered tag in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from clearhead.formats.document import Document, DocumentSegment, Filling
from clearhead.formats.file_text import FileText, Line
from clearhead.formats.html.references import habits, resolved
from clearhead.formats.inline_tags import Tag, repaired_tags, tokens
from clearhead.formats.passages import Passage, Run
from clearhead.formats.subtitles.cues import SUBRIP_MARKUP, WEBVTT_MARKUP, form_and_name, read_cues
from clearhead.formats.wrapping import balanced, width_of

LINE_COLUMNS = 42
"""Maximum line length that broadcasters allow in most languages."""

USUAL_LINES = 2
"""Lines that a cue may have, even if it had fewer, when a line would be too long otherwise."""

_SPEAKER = re.compile(
    rf"(?:(?!<v[\s.>])(?:{WEBVTT_MARKUP.pattern})[ \t]*)*+"
    r"(?:[-–—]|>>|&gt;&gt;|<v[\s.>]|(?P<name>[^\W_][^:<>\r\n]{0,30}):(?=\s|\Z))"
)
"""Beginning of a line of another speaker: a dash, `>>`, in WebVTT a voice, or a name with a colon, if in capitals."""


@dataclass(frozen=True, slots=True)
class _Speaker:
    """Text of one speaker of a cue."""

    passage: Passage
    text: str
    """The text of the passage, with its tags numbered on from those of the speakers before."""
    first: int
    """Number of the tags of the speakers before."""
    around_lines: tuple[str, str]
    """Markup at the end and at the beginning of its lines, where every line has the same."""


@dataclass(frozen=True, slots=True)
class _Cue:
    """The speakers of a cue, with the size of its text."""

    speakers: Sequence[_Speaker]
    num_lines: int
    columns: int
    """Width of its longest line, in columns."""

    @property
    def start(self) -> int:
        """Start of its text in the file."""
        return self.speakers[0].passage.start

    @property
    def end(self) -> int:
        """End of its text in the file."""
        return self.speakers[-1].passage.end

    @property
    def text(self) -> str:
        """Its text as a segment, a line for each speaker."""
        return "\n".join(speaker.text for speaker in self.speakers)

    def on_lines(self, text: str) -> list[str]:
        """Wrap the text of a speaker; tags have no width."""
        num_speakers = len(self.speakers)
        count = max(1, self.num_lines // num_speakers)
        lines = balanced(text, count, width=_seen_width)
        if max(map(_seen_width, lines)) > max(self.columns, LINE_COLUMNS):
            lines = balanced(text, max(count, USUAL_LINES // num_speakers), width=_seen_width)
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
        self._is_webvtt = is_webvtt
        self._references = {**habits(source.text), ord("&"): "&amp;", ord("<"): "&lt;"}
        cues = [(lines, _cue(source.text, lines, is_webvtt=is_webvtt)) for lines in _texts(source, is_webvtt=is_webvtt)]
        self._cues = [cue for _, cue in cues if cue is not None]
        self.segments = [
            self.watched(DocumentSegment(cue.text, source.line(lines[0].start)))
            for lines, cue in cues
            if cue is not None
        ]

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations in its cues, each on as many lines as the original.

        Raises:
            DataError: If a translation contains half of a surrogate pair.
        """
        return self._source.replaced(
            (cue.start, cue.end, self._written(cue, filling.text))
            for cue, filling in zip(self._cues, fillings, strict=True)
            if filling is not None and filling.text != cue.text
        )

    def _written(self, cue: _Cue, translation: str) -> str:
        """Return a translation in the syntax of the file, on as many lines as the original had."""
        given = [line for line in map(str.strip, translation.splitlines()) if line]
        last = len(cue.speakers) - 1
        given = [*given[:last], "\n".join(given[last:])]  # further lines are those of the last speaker
        parts: list[str] = []
        at = cue.start
        for speaker, text in zip_longest(cue.speakers, given, fillvalue=""):
            assert isinstance(speaker, _Speaker)
            gap = self._source.text[at : speaker.passage.start]
            at = speaker.passage.end
            tagged = repaired_tags(text, speaker.text)[0]
            if tagged or gap.strip():  # a blank line would end the cue
                lines = [line for part in tagged.split("\n") for line in cue.on_lines(part)]
                ends = self._source.line_end.join(speaker.around_lines)
                parts += [gap, ends.join(self._line(line, speaker) for line in lines)]
        return "".join(parts)

    def _line(self, line: str, speaker: _Speaker) -> str:
        parts = []
        for token in tokens(line):
            place: tuple[int, int] | str | None = token if isinstance(token, str) else None
            if isinstance(token, Tag):
                element = speaker.passage.elements[token.number - speaker.first - 1]
                place = element.closing if token.form == "close" else element.opening
            assert place is not None
            parts.append(self._escaped(place) if isinstance(place, str) else self._source.text[slice(*place)])
        return "".join(parts)

    def _escaped(self, words: str) -> str:
        """Return words in which nothing is markup, nor `-->`, which would be parsed as the times of a cue."""
        if self._is_webvtt:
            return words.translate(self._references).replace("-->", "--&gt;")
        return words.replace("-->", "->")


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


def _cue(text: str, lines: Sequence[Line], *, is_webvtt: bool) -> _Cue | None:
    """Return the cue of some lines; None if they contain only markup."""
    markup = WEBVTT_MARKUP if is_webvtt else SUBRIP_MARKUP
    decoded = resolved if is_webvtt else str
    spans = [_stripped(text, line) for line in lines]
    groups: list[list[tuple[int, int]]] = []
    for span in spans:
        speaker = _SPEAKER.match(text, *span)
        if not groups or (speaker is not None and (speaker["name"] is None or speaker["name"].isupper())):
            groups.append([])
        groups[-1].append(span)
    speakers: list[_Speaker] = []
    first = 0
    for group in groups:
        around_lines, ranges = _without_same_ends(text, group, markup)
        if (passage := _passage(text, ranges, markup, decoded)) is not None:
            numbered = (
                token if isinstance(token, str) else token._replace(number=token.number + first)
                for token in tokens(passage.text)
            )
            speakers.append(_Speaker(passage, "".join(map(str, numbered)), first, around_lines))
            first += len(passage.elements)
    if not speakers:
        return None
    shown = [decoded(markup.sub("", text[slice(*span)])) for span in spans]
    return _Cue(speakers, sum(map(bool, shown)), max(map(width_of, shown)))


def _without_same_ends(
    text: str, lines: Sequence[tuple[int, int]], markup: re.Pattern[str]
) -> tuple[tuple[str, str], Sequence[tuple[int, int]]]:
    """Return the markup behind and before each of several lines, if all have the same, and the lines without it."""
    inner = [_passage(text, [line], markup, str) for line in lines] if len(lines) > 1 else []
    shown = [(passage.start, passage.end) for passage in inner if passage is not None]
    if len(shown) == len(lines):
        ends = {(text[end:behind], text[at:start]) for (start, end), (at, behind) in zip(shown, lines, strict=True)}
        if len(ends) == 1 and all(ends) and (around := ends.pop())[1]:
            return around, shown
    return ("", ""), lines


def _passage(
    text: str, lines: Sequence[tuple[int, int]], markup: re.Pattern[str], decoded: Callable[[str], str]
) -> Passage | None:
    """Return the text of lines as a passage; None if they contain only markup."""
    run = Run()
    at, end = lines[0][0], lines[-1][1]
    marks = [(mark.start(), mark.end(), mark[0]) for mark in markup.finditer(text, at, end)]
    gaps = [(before[1], behind[0], "") for before, behind in pairwise(lines)]
    for start, behind, mark in sorted([*gaps, *marks, (end, end, "")], key=lambda piece: (piece[0], piece[2] != "")):
        if start < at:  # the end of a line in markup, or markup at the ends of lines
            continue
        first, last = _stripped_range(text, at, start)
        for piece in ((at, first), (first, last), (last, start)):
            run.words(decoded(text[slice(*piece)]), *piece)
        if mark:
            form, name = form_and_name(mark)
            match form:
                case "open":
                    run.opening(name, start, behind)
                case "close":
                    run.closing(name, start, behind)
                case _:
                    run.alone(start, behind, is_seen=False)
        elif start < behind:
            run.line_end(start, behind)
        at = behind
    return run.passage(is_text=lambda words: not words.isspace())


def _stripped(text: str, line: Line) -> tuple[int, int]:
    return _stripped_range(text, line.start, line.end)


def _stripped_range(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a range without white space at its ends."""
    part = text[start:end]
    first = start + len(part) - len(part.lstrip())
    return first, max(first, start + len(part.rstrip()))


def _seen_width(text: str) -> int:
    return width_of("".join(token for token in tokens(text) if isinstance(token, str)))
