"""Repetition loops: what a model writes again and again, and would go on writing until the length limit.

Neural models fall into them where they know nothing better to say, for every repetition makes the next one likelier
(Holtzman et al. 2020, section 3; Xu et al. 2022, "Learning to Break the Loop"). To forbid every repeated n-gram
(Paulus et al. 2018) would also change good text; what is told here is so long that hardly any text but a loop has it,
unless the source has it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["LOOP_TIMES", "LOOP_TOKENS", "is_loop", "most_times"]

LOOP_TOKENS = 20
"""A loop has more tokens than this. A number such as 1,000,000,000,000 is repetitive too, and has 16."""
LOOP_TIMES = 3
"""A loop repeats more than so many times as often as anything in its source: four times at least. Exodus 25:35 says the
same three times in a row."""


def is_loop(written: Sequence[int], times_in_source: Callable[[], int]) -> bool:
    """Tell whether a translation is in a loop: whether it ends in the same tokens again and again.

    They stand in a row over more than `LOOP_TOKENS` tokens, the last time perhaps not whole, and more than `LOOP_TIMES`
    times as often as any tokens of the source do: `ha ha ha` may be as long as it is there.

    Args:
        written: Target ids.
        times_in_source: Returns `most_times` of the source ids; called for the few translations that repeat something.

    >>> is_loop([5, 7, 9] * 7, lambda: 1), is_loop([5, 7, 9] * 7, lambda: 3)
    (True, False)
    """
    return _ends_repeating(written, LOOP_TIMES) and _ends_repeating(written, LOOP_TIMES * times_in_source())


def most_times(ids: Sequence[int]) -> int:
    """Return how many times in a row any tokens stand, at most: 1 where none are repeated.

    >>> most_times([8, 8, 8, 2]), most_times([3, 4, 3, 4, 3])
    (3, 2)
    """
    tokens, most = np.asarray(ids), 1
    for period in range(1, len(ids) // 2 + 1):
        if len(ids) // period <= most:  # however much of it repeats
            break
        differs = np.flatnonzero(tokens[period:] != tokens[:-period])
        runs = np.diff(differs, prepend=-1, append=len(ids) - period) - 1
        most = max(most, int(runs.max()) // period + 1)
    return most


def _ends_repeating(written: Sequence[int], times: int) -> bool:
    """Tell whether tokens stand in a row at the end more than so many times, and over more than `LOOP_TOKENS`."""
    size = len(written)
    if size <= LOOP_TOKENS:
        return False
    newest = written[-1]
    for period in range(1, size // (times + 1) + 1):
        if written[-1 - period] != newest:  # which is nearly always so
            continue
        same = max(times * period, LOOP_TOKENS + 1 - period)  # tokens that stand a period earlier as well
        if same + period <= size and written[-same:] == written[-same - period : -period]:
            return True
    return False
