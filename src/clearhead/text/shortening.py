"""Long texts and lists, shortened for a message, a table or a picture."""

from __future__ import annotations

from collections.abc import Sequence


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a longer one ends in an ellipsis.

    >>> shortened("Zwei Männer", 11), shortened("Zwei Männer", 6)
    ('Zwei Männer', 'Zwei …')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    r"""Return the first texts of a list, and the number of the others.

    Args:
        texts: The texts.
        most: Number of texts shown.
        separator: Text between them, and before the number unless it is a comma.

    >>> first_few(["a", "b", "c"], 2), first_few(["a", "b", "c"], 1, "; ")
    ('a, b and 1 more', 'a; and 2 more')
    """
    more = f"{' ' if separator == ', ' else separator}and {len(texts) - most:,} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more
