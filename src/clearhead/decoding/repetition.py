"""Repetition loops: whether a translation ends by repeating tokens far more often than its source repeats any.

Neural models fall into loops if no continuation is likely, because each repetition makes the next one likelier
(Holtzman et al. 2020, section 3; Xu et al. 2022, "Learning to Break the Loop"). Forbidding every repeated n-gram
(Paulus et al. 2018) would also change good text. The loops detected here are so long that hardly any other text
contains them, unless the source does too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

LOOP_TOKENS = 20
"""A loop has more tokens than this. A number such as 1,000,000,000,000 is repetitive too, and has 16 tokens."""
LOOP_TIMES = 3
"""A loop has more than this many times the repetitions of anything in its source, so at least four. Exodus 25:35 says
the same three times in a row."""

_REPEATED = re.compile(r"(.+?)\1", re.DOTALL)


def is_loop(written: Sequence[int], times_in_source: Callable[[], int]) -> bool:
    """Return whether a translation ends in a repetition loop.

    The loop must have more than `LOOP_TOKENS` tokens in a row, the last repetition perhaps incomplete. It must have
    more than `LOOP_TIMES` times as many repetitions as any tokens of the source: `ha ha ha` may be as long as in the
    source.

    Args:
        written: Target ids.
        times_in_source: Function that returns `most_times` of the source ids; only called if the translation repeats
            something.

    >>> is_loop([5, 7, 9] * 7, lambda: 1), is_loop([5, 7, 9] * 7, lambda: 3)
    (True, False)
    """
    return _ends_repeating(written, LOOP_TIMES) and _ends_repeating(written, LOOP_TIMES * times_in_source())


def most_times(ids: Sequence[int]) -> int:
    """Return the largest number of consecutive repetitions of any token sequence: 1 if nothing is repeated.

    >>> most_times([8, 8, 8, 2]), most_times([3, 4, 3, 4, 3])
    (3, 2)
    """
    if _REPEATED.search("".join(map(chr, ids))) is None:  # as usual, and found much sooner
        return 1
    tokens, most = np.asarray(ids), 1
    for period in range(1, len(ids) // 2 + 1):
        if len(ids) // period <= most:  # no longer period can repeat more often
            break
        differs = np.flatnonzero(tokens[period:] != tokens[:-period])
        runs = np.diff(differs, prepend=-1, append=len(ids) - period) - 1
        most = max(most, int(runs.max()) // period + 1)
    return most


def _ends_repeating(written: Sequence[int], times: int) -> bool:
    """Return whether the last tokens repeat more than `times` times in a row, over more than `LOOP_TOKENS` tokens."""
    size = len(written)
    if size <= LOOP_TOKENS:
        return False
    newest = written[-1]
    for period in range(1, size // (times + 1) + 1):
        if written[-1 - period] != newest:  # true nearly always
            continue
        same = max(times * period, LOOP_TOKENS + 1 - period)  # tokens equal to those one period earlier
        if same + period <= size and written[-same:] == written[-same - period : -period]:
            return True
    return False
