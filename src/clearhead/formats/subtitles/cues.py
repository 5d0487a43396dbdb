r"""Parser of SubRip (`.srt`) and WebVTT (`.vtt`) subtitles: times, text lines and markup of each cue.

SubRip has no specification; that of WebVTT is https://www.w3.org/TR/webvtt1/. The published parsers (srt 3.5, pysubs2
1.8, webvtt-py 0.6) are not used: they do not report the line of a cue, and silently skip a cue whose time is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from clearhead.errors import DataError

# A colon is accepted before the milliseconds only if there are hours too; `01:02:03` alone is ambiguous.
_TIME = (
    r"(?:([0-9]{1,4}):(?=[0-9]+:))?([0-9]{1,2}):([0-9]{1,2})(?:[.,]|(?<=[0-9]:[0-9]{2}:[0-9]{2}):)([0-9]{1,3})(?![0-9])"
)
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")
_MEANT_AS_TIMES = re.compile(rf"(?=.*-->).*[0-9]:[0-9]|\s*{_TIME}\s*(?:-|–|—|>|→|{_TIME})")
_NO_CUE = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s|$)")
"""Begins a block of a WebVTT file that is no cue, unless it contains times."""
_NUMBER = re.compile(r"\s*[0-9]+\s*")
_SHOWN_CHARACTERS = 40


@dataclass(slots=True)
class Cue:
    """A subtitle: text that is shown for some time."""

    line: int
    """Line number of its times, counted from 1."""
    start: int
    """Start time, in milliseconds."""
    end: int
    texts: list[list[tuple[int, str]]] = field(default_factory=lambda: [[]])
    """Numbered lines of its text, grouped by the blank lines between them. In WebVTT, text after a blank line is not
    part of the cue."""


def read_cues(lines: Iterable[str], name: str, *, is_webvtt: bool, refuse_stray: bool) -> Iterator[Cue]:
    """Yield the cues of a file, in file order.

    Args:
        lines: Lines of the file, without line endings.
        name: Name of the file in messages.
        is_webvtt: Whether the format is WebVTT; otherwise it is SubRip.
        refuse_stray: Raise if a SubRip file has text before its first cue, which belongs to no cue; otherwise such text
            is ignored.

    Raises:
        DataError: If a line of times is malformed, a WebVTT file does not begin with `WEBVTT`, or a SubRip file has
            text but no cue.
    """
    cue: Cue | None = None
    stray = num_lines = 0
    before = ""
    is_note = False  # whether the line belongs to the header, a note, a style or a region of WebVTT
    for num_lines, line in enumerate(lines, start=1):
        if is_webvtt and num_lines == 1:
            _require_mark(line, name)
        if is_webvtt and not before.strip():
            is_note = _NO_CUE.match(line) is not None
        if times := _TIMES.fullmatch(line):
            if cue is None and stray and not (stray == num_lines - 1 and _NUMBER.fullmatch(before)) and refuse_stray:
                raise DataError(f"{name}, line {num_lines}: the text before these times, the first, belongs to no cue")
            if cue is not None:
                yield _without_number(cue, num_lines - 1)
            cue = Cue(num_lines, _milliseconds(times.groups()[:4]), _milliseconds(times.groups()[4:]))
        elif not is_note and _MEANT_AS_TIMES.match(line):
            raise DataError(
                f"{name}, line {num_lines}: {line.strip()[:_SHOWN_CHARACTERS]!r} is meant as the times of a cue, and "
                f"is not written as 00:00:01,500 --> 00:00:04,000"
            )
        elif cue is None:
            stray = stray or (num_lines if line.strip() and not is_webvtt else 0)
        elif line.strip():
            cue.texts[-1].append((num_lines, line))
        else:
            cue.texts.append([])
        before = line
    if is_webvtt and not num_lines:
        _require_mark("", name)
    if cue is not None:
        yield cue
    elif stray:
        raise DataError(f"{name} has {num_lines} lines, and none with times, such as 00:00:01,500 --> 00:00:04,000")


def _require_mark(line: str, name: str) -> None:
    if not re.match(r"WEBVTT(?:\s|$)", line):
        raise DataError(f"{name}, line 1: a .vtt begins with WEBVTT, this one with {line[:_SHOWN_CHARACTERS]!r}")


def _without_number(cue: Cue, last: int) -> Cue:
    """Remove the number of the next cue from the end of the cue's text, if the last line is one."""
    lines = cue.texts[-1]
    if lines and lines[-1][0] == last and _NUMBER.fullmatch(lines[-1][1]):
        lines.pop()
    return cue


def _milliseconds(parts: Sequence[str | None]) -> int:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(fraction.ljust(3, "0"))


_ASS = r"\{\\[^{}]*\}"
SUBRIP_MARKUP = re.compile(rf"</?(?:b|i|u|s|font)(?:\s[^<>]*)?>|{_ASS}", re.IGNORECASE)
WEBVTT_MARKUP = re.compile(rf"<[^<>]*>|{_ASS}")
"""All tags of WebVTT: formatting, voices, languages, times; players do not show unknown ones either."""

_TAG = re.compile(r"<(/?)([a-zA-Z]+)")
_SWITCH = re.compile(r"\{\\([bisu])([0-9]+)\}")


def form_and_name(markup: str) -> tuple[str, str]:
    r"""Return the form of markup (`open`, `close` or `alone`), and the name that the tags of a pair have in common.

    >>> form_and_name("<c.red>"), form_and_name("</c>"), form_and_name("<00:01.500>")
    (('open', 'c'), ('close', 'c'), ('alone', ''))
    >>> form_and_name(r"{\i1}"), form_and_name(r"{\i0}"), form_and_name(r"{\an8}")
    (('open', '\\i'), ('close', '\\i'), ('alone', ''))
    """
    if tag := _TAG.match(markup):
        return "close" if tag[1] else "open", tag[2].lower()
    if switch := _SWITCH.fullmatch(markup):
        return "open" if int(switch[2]) else "close", f"\\{switch[1]}"
    return "alone", ""
