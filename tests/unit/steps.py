"""How the work of a call grows with its input: the lines of Python that it executes, counted instead of timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any


def lines_executed(call: Callable[[], Any]) -> int:
    """Return how many lines of Python a call executes, in all functions; those within C count as nothing."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def assert_linear(call: Callable[[int], Any], size: int) -> None:
    """Check that twice the size is at most about twice the work, two times over.

    Args:
        call: Does the work for an input of a size.
        size: The smallest size.
    """
    call(size)  # what is computed once is not counted
    counts = [lines_executed(lambda size=size: call(size)) for size in (size, 2 * size, 4 * size)]
    assert all(later <= 2.2 * earlier for earlier, later in pairwise(counts)), counts
