"""Parallel text in two files: lines, and where unequal files drift apart; or subtitles, paired by time."""

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

# A line that is blank on one side only is much stronger evidence of misalignment than any difference in length.
ONE_SIDE_BLANK = 3.0
# Thresholds for naming a line: assuming a gap there must improve the agreement of the lengths by at least
# `LEAST_GAIN` in total and by `CLEAR_GAIN` standard errors. Chance, even when every line of a corpus is tried, stays
# below both.
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
    """Stream the sentence pairs of line-aligned files, file by file, holding one line of each in memory.

    Two subtitle files are paired by time instead, see `read_subtitles`.

    Args:
        sources: Source files, in any form that `read_lines` accepts.
        targets: Their translations, in the same order.
        swap: Exchange source and target.
        links: Word alignments of the lines; only for line-aligned text.
        notice: Called with messages: which files are subtitles, and that the direction is swapped.
        on_unequal: Called if two files differ in their number of lines, with the origin of the first line without a
            partner and a description of the problem. Reading then continues with the next files.

    Raises:
        DataError: Immediately, if the numbers of sources and targets (or of link files) differ, standard input is named
            twice, only one file of two is subtitles, or links are given for subtitles. During iteration, if a file is
            not readable text, a line of links is invalid (`GivenLinks.beside`), or, without `on_unequal`, two files
            differ in their number of lines; the message gives both counts and, if it can be determined, the first line
            at which the files drift apart.
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
    # A pipe or standard input cannot be read twice, so only regular files are examined again.
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
    """Estimate at which line one of two files lost or gained lines, from the lengths of the lines.

    Translations are about as long as their sources (Gale and Church 1993). The estimate assumes that all surplus lines
    of the longer file are in one place. It returns the place at which the lengths agree best, if that is clearly better
    than no gap.

    Args:
        source_lengths: Characters of every source line.
        target_lengths: Characters of every target line; the number of lines differs.

    Returns:
        Line number, counted from 1, or `None` if it cannot be determined.
    """
    longer, shorter = source_lengths, target_lengths
    if longer.size < shorter.size:
        longer, shorter = shorter, longer
    surplus = longer.size - shorter.size
    if surplus == 0 or shorter.size == 0:
        return None
    log_longer, log_shorter = np.log(longer + 1.0), np.log(shorter + 1.0)
    # Medians over each file, not over the pairs: they are correct even if the lines are misaligned.
    usual = np.median(log_longer) - np.median(log_shorter)

    def cost(offset: int) -> NDArray[np.float64]:
        beside = slice(offset, offset + shorter.size)
        blank = (longer[beside] == 0) != (shorter == 0)
        return np.abs(log_longer[beside] - log_shorter - usual) + ONE_SIDE_BLANK * blank

    # gain[i]: improvement for line i of the shorter file if the surplus lines are skipped before it.
    gain = cost(0) - cost(surplus)
    gain_from = np.append(np.cumsum(gain[::-1])[::-1], 0.0)
    line = int(np.argmax(gain_from))
    rest = gain[line:]
    if gain_from[line] < LEAST_GAIN or gain_from[line] < CLEAR_GAIN * np.sqrt(rest.size) * rest.std():
        return None
    return line + 1
