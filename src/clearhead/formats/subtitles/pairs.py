"""Sentence pairs from subtitles in two languages, SubRip (`.srt`) or WebVTT (`.vtt`): cues are paired by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from clearhead.errors import DataError
from clearhead.files.streams import display_name, format_extension, read_lines
from clearhead.formats.html.references import resolved
from clearhead.formats.pair import SentencePair
from clearhead.formats.subtitles.cues import SUBRIP_MARKUP, WEBVTT_MARKUP, read_cues
from clearhead.formats.wrapping import unwrapped

SUBTITLES = (".srt", ".vtt")
"""Extensions of subtitle files."""

MOST_COMPARED = 1_000_000
"""Maximum number of comparisons between cues of the two files, which bounds time and memory. A film has some thousand
cues, and in no subtitles are this many shown at the same time."""


@dataclass
class _Cue:
    """A cue of one file, with the cues of the other file that overlap it."""

    line: int
    """Line number of its times, counted from 1."""
    start: int
    """Start time, in milliseconds."""
    end: int
    text: str = ""
    partners: dict[int, int] = field(default_factory=dict)
    """Overlap in milliseconds with cues of the other file, by their index; only sufficient overlaps."""

    @property
    def best(self) -> int | None:
        """Index of the cue with the longest overlap, the first one if several are equal; None without any."""
        return max(self.partners, key=lambda number: (self.partners[number], -number), default=None)


def read_subtitles(source: str, target: str) -> Iterator[SentencePair]:
    """Yield pairs of cues of two files, in the order of time; both files are held in memory.

    Two cues are candidates if they overlap for at least half of the shorter one's duration. Two cues that are each
    other's longest overlap form a pair. Every other cue whose longest overlap is with one of them joins the pair, and
    the texts of a side are joined, see `unwrapped`. A cue without a pair is yielded with one side, as `unpaired`.

    Args:
        source: Source file, `.srt` or `.vtt`, optionally followed by `.gz`, `.xz` or `.zst`.
        target: File of its translation, likewise.

    Raises:
        DataError: If a file is not readable text, a line of times is malformed, a cue ends before it begins, or too
            many cues overlap (`MOST_COMPARED`).
    """
    sources, targets = (sorted(_cues(path), key=attrgetter("start", "end", "line")) for path in (source, target))
    _meet(sources, targets, source)
    groups: dict[int, tuple[list[int], list[int]]] = {}  # by the index of the source cue at the centre of the pair
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
    pairs = [
        (
            min(sources[left[0]].start, targets[right[0]].start),
            SentencePair(_joined(sources, left), _joined(targets, right), f"{source}:{sources[left[0]].line}"),
        )
        for left, right in groups.values()
    ]
    pairs += [
        (cue.start, SentencePair(cue.text, "", f"{source}:{cue.line}", skipped="unpaired"))
        for number, cue in enumerate(sources)
        if number not in paired[0]
    ]
    pairs += [
        (cue.start, SentencePair("", cue.text, f"{target}:{cue.line}", skipped="unpaired"))
        for number, cue in enumerate(targets)
        if number not in paired[1]
    ]
    yield from (pair for _, pair in sorted(pairs, key=lambda item: item[0]))


def _joined(cues: Sequence[_Cue], numbers: Sequence[int]) -> str:
    return unwrapped([cues[number].text for number in numbers if cues[number].text])


def _meet(sources: Sequence[_Cue], targets: Sequence[_Cue], path: str) -> None:
    """Fill in the candidates of every cue; both lists are sorted by start time."""
    seen: list[int] = []  # targets that may not have ended yet
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
        texts = cue.texts[:1] if is_vtt else cue.texts  # in WebVTT, text after a blank line is a note or a style
        yield _Cue(cue.line, cue.start, cue.end, _text([line for lines in texts for _, line in lines], is_vtt))


def _text(body: Sequence[str], is_vtt: bool) -> str:
    """Return the displayed text of a cue, on one line."""
    text = "\n".join(body)
    shown = resolved(WEBVTT_MARKUP.sub("", text)) if is_vtt else SUBRIP_MARKUP.sub("", text)
    lines = (" ".join(line.split()) for line in shown.splitlines())
    return unwrapped([line for line in lines if line])
