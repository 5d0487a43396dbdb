"""Bounds on values that may contain the same part many times: YAML with aliases, and pickles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from clearhead.errors import ModelError

MOST_DEPTH = 64
"""Maximum nesting depth; the settings in checkpoints of toolkits have about 10 levels."""
_MOST_REPEATED = 16
"""Maximum ratio of the size of a value written out to the size of its file."""
_ALWAYS_ALLOWED = 1_000_000
"""Size of a value written out that is accepted from a file of any size."""


def require_bounded(root: Any, parts: Callable[[Any], Iterable[Any]], *, stored: int, origin: object) -> None:
    """Check the depth of a value and its size when every part is written out wherever it occurs.

    Such a value may be exponentially larger than its file, and then even its `repr` fills the memory. The check itself
    visits each part once.

    Args:
        root: The value.
        parts: Function that returns the values directly inside a value.
        stored: Size of the file in bytes.
        origin: Name of the file, for the message.

    Raises:
        ModelError: If the value is too deep or too large.
    """
    found: dict[int, tuple[float, int]] = {}

    def measured(value: Any, depth: int) -> tuple[float, int]:
        """Return the size of a value, and the depth inside it."""
        if isinstance(value, str | bytes):
            return 1 + len(value), 0
        if (known := found.get(id(value))) is not None:
            return known
        if depth == MOST_DEPTH:
            return math.inf, 0
        found[id(value)] = math.inf, 0  # the result for a value inside itself
        inside = [measured(part, depth + 1) for part in parts(value)]
        found[id(value)] = 1 + sum(size for size, _ in inside), 1 + max((deep for _, deep in inside), default=0)
        return found[id(value)]

    size, depth = measured(root, 0)
    if size > _MOST_REPEATED * stored + _ALWAYS_ALLOWED or depth > MOST_DEPTH:
        raise ModelError(
            f"{origin} is damaged: its values are nested deeper than {MOST_DEPTH} levels, or repeat parts until they "
            f"are more than {_MOST_REPEATED} times as large as the file"
        )
