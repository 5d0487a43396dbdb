"""Subtitles in two languages: SubRip (`.srt`) and WebVTT (`.vtt`), a file each, whose cues belong together by time."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from operator import attrgetter

from clearhead.errors import DataError
from clearhead.files.streams import display_name, format_extension, read_lines
from clearhead.formats.pair import SentencePair
from clearhead.formats.subtitles.cues import read_cues

__all__ = ["SUBTITLES", "read_subtitles"]

SUBTITLES = (".srt", ".vtt")
"""Extensions of files of subtitles."""

SRT_TAGS = re.compile(r"</?(?:b|i|u|s|font)(?:\s[^<>]*)?>", re.IGNORECASE)
VTT_TAGS = re.compile(r"<[^<>]*>")
"""All of them: formats, voices, languages, times."""
ASS_TAGS = re.compile(r"\{\\[^{}]*\}")
"""Of another format, as `{\an8}`, which players of SubRip know."""

MOST_COMPARED = 1_000_000
"""Cues of the other file that all cues together are compared with; a film has some thousands, and no subtitles have so
many that are seen at once. It bounds time and memory."""


@dataclass
class _Cue:
    """What is shown for a while."""

    line: int
    """Of its times, counted from 1."""
    start: int
    """In milliseconds."""
    end: int
    text: str = ""
    partners: dict[int, int] = field(default_factory=dict)
    """Milliseconds together with cues of the other file, by their numbers; only of those it may belong to."""

    @property
    def best(self) -> int | None:
        """Number of the cue it is seen longest with, the first of those."""
        return max(self.partners, key=lambda number: (self.partners[number], -number), default=None)


def read_subtitles(source: str, target: str) -> Iterator[SentencePair]:
    """Yield the cues of two files that belong together, in the order of time; both files are held in memory.

    Two cues may belong together if they are seen together for at least half of the shorter one's time. Two that are
    each other's longest make a pair, and every other cue whose longest is one of them joins it: their texts then stand
    in a row, separated by a space. A cue that belongs nowhere is a pair with one side, skipped as `unpaired`.

    Args:
        source: File of the source, `.srt` or `.vtt`, also under `.gz`, `.xz` or `.zst`.
        target: File of its translation.

    Raises:
        DataError: If one cannot be read as text, or a line of times is broken.
    """
    sources, targets = (sorted(_cues(path), key=attrgetter("start", "end", "line")) for path in (source, target))
    _meet(sources, targets, source)
    groups: dict[int, tuple[list[int], list[int]]] = {}  # by the number of the source that is its middle
    middles = [(number, cue.best) for number, cue in enumerate(sources)]
    middle_of_target = {best: number for number, best in middles if best is not None and targets[best].best == number}
    for number, best in middles:
        if best in middle_of_target:
            groups.setdefault(middle_of_target[best], ([], []))[0].append(number)
    middle_of_source = set(middle_of_target.values())
    for number, cue in enumerate(targets):
        if cue.best in middle_of_source:
            groups[cue.best][1].append(number)
    paired = [{number for group in groups.values() for number in group[side]} for side in (0, 1)]
    found = [
        (
            min(sources[left[0]].start, targets[right[0]].start),
            SentencePair(_joined(sources, left), _joined(targets, right), f"{source}:{sources[left[0]].line}"),
        )
        for left, right in groups.values()
    ]
    found += [
        (cue.start, SentencePair(cue.text, "", f"{source}:{cue.line}", skipped="unpaired"))
        for number, cue in enumerate(sources)
        if number not in paired[0]
    ]
    found += [
        (cue.start, SentencePair("", cue.text, f"{target}:{cue.line}", skipped="unpaired"))
        for number, cue in enumerate(targets)
        if number not in paired[1]
    ]
    yield from (pair for _, pair in sorted(found, key=lambda item: item[0]))


def _joined(cues: Sequence[_Cue], numbers: Sequence[int]) -> str:
    return " ".join(cues[number].text for number in numbers if cues[number].text)


def _meet(sources: Sequence[_Cue], targets: Sequence[_Cue], path: str) -> None:
    """Note in every cue which ones of the other file it may belong to; both are sorted by their starts."""
    seen: list[int] = []  # targets that may not have ended
    following = 0
    starts = [cue.start for cue in targets]
    compared = 0
    for number, cue in enumerate(sources):
        until = bisect_right(starts, cue.end)
        seen = [other for other in seen if targets[other].end >= cue.start]
        while following < until:
            if targets[following].end >= cue.start:
                seen.append(following)
            following += 1
        compared += len(seen)
        if compared > MOST_COMPARED:
            raise DataError(
                f"{display_name(path)}, line {cue.line}: too many cues of the other file are seen at once; "
                f"are its times right?"
            )
        for other in seen:
            partner = targets[other]
            together = min(cue.end, partner.end) - max(cue.start, partner.start)
            shorter = min(cue.end - cue.start, partner.end - partner.start)
            if together >= 0 and 2 * together >= shorter:
                cue.partners[other] = together
                partner.partners[number] = together


def _cues(path: str) -> Iterator[_Cue]:
    is_vtt = format_extension(path) == ".vtt"
    name = display_name(path)
    for cue in read_cues(read_lines(path), name, is_webvtt=is_vtt, refuse_stray=True):
        if cue.end < cue.start:
            raise DataError(f"{name}, line {cue.line}: the cue ends before it begins")
        texts = cue.texts[:1] if is_vtt else cue.texts  # what follows a blank line is a note or a style
        yield _Cue(cue.line, cue.start, cue.end, _text([line for lines in texts for _, line in lines], is_vtt))


def _text(body: Sequence[str], is_vtt: bool) -> str:
    """Return what is read on the screen, on one line."""
    text = unescape(VTT_TAGS.sub("", "\n".join(body))) if is_vtt else SRT_TAGS.sub("", "\n".join(body))
    return " ".join(ASS_TAGS.sub("", text).split())
