"""Two files that belong together: line n of one is the translation of line n of the other, or both are subtitles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError
from clearhead.files.streams import display_name, format_extension, read_lines, some_names
from clearhead.formats.alignment_links import GivenLinks
from clearhead.formats.pair import SentencePair
from clearhead.formats.subtitles.pairs import SUBTITLES, read_subtitles

__all__ = ["drift_line", "read_parallel"]

# A line that is blank on one side only is a far stronger sign of misalignment than any difference in length.
ONE_SIDE_BLANK = 3.0
# Before a line is named, assuming a gap there must make the lengths agree better by this much in all, and by this many
# standard errors: chance, searched over every line of a corpus, stays below.
LEAST_GAIN = 2.0
CLEAR_GAIN = 4.0


def read_parallel(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    swap: bool = False,
    links: GivenLinks | None = None,
    notice: Callable[[str], None] | None = None,
    on_unequal: Callable[[str, str], None] | None = None,
) -> Iterator[SentencePair]:
    """Stream the pairs of line-aligned files, file by file, one line of each in memory at a time.

    Two files of subtitles are read as such, see `read_subtitles`.

    Args:
        sources: Source files, as `read_lines` takes them.
        targets: Their translations, in the same order.
        swap: Read them in the other direction.
        links: What says which words of the lines belong together; for text line by line alone.
        notice: Told so, and which files are subtitles.
        on_unequal: Told of two files that differ in their number of lines, and where the shorter one ends: the origin
            of the first line without a partner, and what is wrong. The next files are read then.

    Raises:
        DataError: At once, if there are not as many targets (and files of links, if any) as sources, standard input is
            named twice, only one of two files is of subtitles, or links are given for them; and while reading, if one
            is not readable text, a line of links cannot be used (`GivenLinks.beside`), or without `on_unequal` the two
            files differ in their number of lines (naming both counts and, where it can be told, the first line at which
            they drift apart).
    """
    if len(sources) != len(targets):
        raise DataError(
            f"{len(sources)} source files but {len(targets)} target files; every source file needs its target file "
            f"(sources: {', '.join(sources) or 'none'}; targets: {', '.join(targets) or 'none'})"
        )
    if [*sources, *targets].count("-") > 1:
        raise DataError("standard input (-) is named more than once, but it can be read only once")
    for source, target in zip(sources, targets, strict=True):
        if _is_subtitles(source) != _is_subtitles(target):
            raise DataError(
                f"{display_name(source)} and {display_name(target)}: subtitles ({', '.join(SUBTITLES)}) are paired by "
                f"their times, so both must be subtitles"
            )
    if links is not None:
        links.refuse_others(sources, [path for path in sources if _is_subtitles(path)])
    if notice is not None and (cues := [path for path in sources if _is_subtitles(path)]):
        notice(f"{some_names(cues)}: subtitles, their cues paired by time")
    pairs = (
        pair
        for number, (source, target) in enumerate(zip(sources, targets, strict=True))
        for pair in (
            read_subtitles(source, target)
            if _is_subtitles(source)
            else _read_two(source, target, on_unequal)
            if links is None
            else links.beside(_read_two(source, target, on_unequal), number, source, target)
        )
    )
    if not (swap and sources):
        return pairs
    if notice is not None:
        notice(f"line by line, swapped: from {some_names(targets)} to {some_names(sources)}")
    return (pair.swapped() for pair in pairs)


def _is_subtitles(path: str) -> bool:
    return format_extension(path) in SUBTITLES


def _read_two(source: str, target: str, on_unequal: Callable[[str, str], None] | None) -> Iterator[SentencePair]:
    source_lines, target_lines = read_lines(source), read_lines(target)
    number = 0
    while True:
        source_line, target_line = next(source_lines, None), next(target_lines, None)
        if source_line is None or target_line is None:
            break
        number += 1
        yield SentencePair(source_line, target_line, f"{source}:{number}")
    if source_line is None and target_line is None:
        return
    num_source = number + (source_line is not None) + sum(1 for _ in source_lines)
    num_target = number + (target_line is not None) + sum(1 for _ in target_lines)
    problem = (
        f"{display_name(source)} has {num_source} lines but {display_name(target)} has {num_target}; "
        f"line n of one must be the translation of line n of the other{_where(source, target)}"
    )
    if on_unequal is None:
        raise DataError(problem)
    on_unequal(f"{source if target_line is None else target}:{number + 1}", problem)


def _where(source: str, target: str) -> str:
    # A pipe or standard input is gone once it has been read, so only regular files can be looked at again.
    if not (os.path.isfile(source) and os.path.isfile(target)):
        return ""
    lengths = [np.fromiter(map(len, read_lines(path)), dtype=np.int64) for path in (source, target)]
    surplus = abs(lengths[0].size - lengths[1].size)
    longer = int(lengths[1].size > lengths[0].size)
    if not lengths[longer][-surplus:].any():
        return f"; the last {surplus} of {(source, target)[longer]} are blank: remove them"
    line = drift_line(*lengths)
    return "" if line is None else f"; the files seem to drift apart near line {line}"


def drift_line(source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64]) -> int | None:
    """Guess where one of two files, equal but for one gap, lost or gained lines, from the lengths of the lines alone.

    Translations are about as long as their sources (Gale and Church 1993). Suppose the longer file has all its surplus
    lines in one place: the place that makes the lengths agree best is returned, if it is clearly better than none.

    Args:
        source_lengths: Characters of every source line.
        target_lengths: Characters of every target line; another number of lines.

    Returns:
        Line number, counted from 1, or `None` if it cannot be told.
    """
    longer, shorter = source_lengths, target_lengths
    if longer.size < shorter.size:
        longer, shorter = shorter, longer
    surplus = longer.size - shorter.size
    if surplus == 0 or shorter.size == 0:
        return None
    log_longer, log_shorter = np.log(longer + 1.0), np.log(shorter + 1.0)
    # Medians of each file, not of the pairs: they are right even while the pairs are not.
    usual = np.median(log_longer) - np.median(log_shorter)

    def cost(offset: int) -> NDArray[np.float64]:
        beside = slice(offset, offset + shorter.size)
        blank = (longer[beside] == 0) != (shorter == 0)
        return np.abs(log_longer[beside] - log_shorter - usual) + ONE_SIDE_BLANK * blank

    # gain[i]: how much better line i of the shorter file fits once the surplus lines before it are skipped.
    gain = cost(0) - cost(surplus)
    gain_from = np.append(np.cumsum(gain[::-1])[::-1], 0.0)
    line = int(np.argmax(gain_from))
    rest = gain[line:]
    if gain_from[line] < LEAST_GAIN or gain_from[line] < CLEAR_GAIN * np.sqrt(rest.size) * rest.std():
        return None
    return line + 1
