"""Where in a text its tokens stand, told by the pieces alone: for vocabularies that change the text they spell."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["matched_spans"]

_FARTHEST = 16
"""Characters that a piece is looked for behind the place where it should stand."""


def matched_spans(pieces: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Return where each piece stands in a text, its white space left out: begin and end in characters.

    A piece that is found nowhere near, such as one for the unknown or a part of a character, has what lies between its
    neighbours. Letter case does not count.

    Args:
        pieces: Readable pieces, in order; empty ones are no text and have an empty span.
        text: What they spell.

    >>> matched_spans([" ein", " <unk>", "hund", ""], "Ein ½hund")
    [(0, 3), (4, 5), (5, 9), (9, 9)]
    """
    lowered = _lowered(text)
    found: list[tuple[int, int] | None] = []
    at = 0
    for piece in pieces:
        own = _lowered(piece.strip())
        start = lowered.find(own, at, at + len(own) + _FARTHEST) if own else -1
        if start >= 0:
            at = start + len(own)
            found.append((start, at))
        else:
            found.append(None if own else (at, at))
    starts: list[int] = []  # of the next piece that stands somewhere, from each on
    following = len(text)
    for span, piece in zip(reversed(found), reversed(pieces), strict=True):
        if span is not None and piece.strip():
            following = span[0]
        starts.append(following)
    spans: list[tuple[int, int]] = []
    end = 0
    for span, limit in zip(found, reversed(starts), strict=True):
        if span is None:
            gap = text[end:limit]
            start = end + len(gap) - len(gap.lstrip())
            spans.append((start, max(start, end + len(gap.rstrip()))))
        else:
            spans.append(span)
            end = span[1]
    return spans


def _lowered(text: str) -> str:
    """Return a text in small letters, each in its place: `İ` would become two."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c if len(c.lower()) != 1 else c.lower() for c in text)
