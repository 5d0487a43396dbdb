r"""Files of subtitles cut into cues: SubRip (`.srt`) and WebVTT (`.vtt`).

SubRip has no specification; WebVTT is https://www.w3.org/TR/webvtt1/. They are read here, for the published parsers
(srt 3.5, pysubs2 1.8, webvtt-py 0.6) do not say on which line a cue stands, and pass over one whose time is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from clearhead.errors import DataError

__all__ = ["Cue", "read_cues"]

# A colon before the milliseconds is read where hours are there as well; `01:02:03` alone could be either.
_TIME = (
    r"(?:([0-9]{1,4}):(?=[0-9]+:))?([0-9]{1,2}):([0-9]{1,2})(?:[.,]|(?<=[0-9]:[0-9]{2}:[0-9]{2}):)([0-9]{1,3})(?![0-9])"
)
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")
_MEANT_AS_TIMES = re.compile(rf"(?=.*-->).*[0-9]:[0-9]|\s*{_TIME}\s*(?:-|–|—|>|→|{_TIME})")
_NUMBER = re.compile(r"\s*[0-9]+\s*")
_SHOWN_CHARACTERS = 40


@dataclass(slots=True)
class Cue:
    """What is shown for a while."""

    line: int
    """Of its times, counted from 1."""
    start: int
    """In milliseconds."""
    end: int
    texts: list[list[tuple[int, str]]] = field(default_factory=lambda: [[]])
    """Its lines with their numbers; those between two blank lines together, if any. In WebVTT what follows a blank line
    belongs to no cue."""


def read_cues(lines: Iterable[str], name: str, *, is_webvtt: bool, refuse_stray: bool) -> Iterator[Cue]:
    """Yield the cues of a file, in its order.

    Args:
        lines: Of the file, without line ends.
        name: As messages call it.
        is_webvtt: Which of the formats it is.
        refuse_stray: Refuse text before the first cue of a SubRip file, which belongs to none; otherwise it is passed
            over.

    Raises:
        DataError: If a line of times is broken, a WebVTT file does not begin with its mark, or a SubRip file has text
            and no cue.
    """
    cue: Cue | None = None
    stray = num_lines = 0
    before = ""
    for num_lines, line in enumerate(lines, start=1):
        if is_webvtt and num_lines == 1:
            _require_mark(line, name)
        if times := _TIMES.fullmatch(line):
            if cue is None and stray and not (stray == num_lines - 1 and _NUMBER.fullmatch(before)) and refuse_stray:
                raise DataError(
                    f"{name}, line {num_lines}: text stands before these times, the first, and belongs to no cue"
                )
            if cue is not None:
                yield _without_number(cue, num_lines - 1)
            cue = Cue(num_lines, _milliseconds(times.groups()[:4]), _milliseconds(times.groups()[4:]))
        elif _MEANT_AS_TIMES.match(line):
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
    """Take the number of the cue that begins behind the last line, if it stands there."""
    lines = cue.texts[-1]
    if lines and lines[-1][0] == last and _NUMBER.fullmatch(lines[-1][1]):
        lines.pop()
    return cue


def _milliseconds(parts: Sequence[str | None]) -> int:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(fraction.ljust(3, "0"))
