"""Where in a text its tokens stand, told by the pieces alone: for vocabularies that change the text they spell."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

__all__ = ["UNREADABLE", "matched_spans"]

UNREADABLE = "\ufffd"
"""What a piece that is part of a character reads as."""

_FARTHEST = 16
"""Characters that a piece is looked for behind the place where it should stand."""


def matched_spans(pieces: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Return where each piece stands in a text, its white space left out: begin and end in characters.

    A piece that is found nowhere near, such as one for the unknown or a part of a character, has what lies between its
    neighbours. Letter case and compatible forms count for nothing.

    Args:
        pieces: Readable pieces, in order; empty ones are no text and have an empty span.
        text: What they spell.

    >>> matched_spans([" ein", " <unk>", "hund", ""], "Ein ½hund")
    [(0, 3), (4, 5), (5, 9), (9, 9)]
    """
    folded, places = _folded(text)
    found: list[tuple[int, int] | None] = []  # in `folded`, like all that follows
    at = 0
    for piece in pieces:
        own = _folded(piece.strip())[0]
        start = folded.find(own, at, at + len(own) + _FARTHEST) if own and UNREADABLE not in own else -1
        if start >= 0:
            at = start + len(own)
            found.append((start, at))
        else:
            found.append(None if own else (at, at))
    starts: list[int] = []  # of the next piece that stands somewhere, from each on
    following = len(folded)
    for span, piece in zip(reversed(found), reversed(pieces), strict=True):
        if span is not None and piece.strip():
            following = span[0]
        starts.append(following)
    spans: list[tuple[int, int]] = []
    end = 0
    for span, limit in zip(found, reversed(starts), strict=True):
        if span is None:
            gap = text[places[end] : places[limit]]
            start = places[end] + len(gap) - len(gap.lstrip())
            spans.append((start, max(start, places[end] + len(gap.rstrip()))))
        elif span[0] == span[1]:
            spans.append((places[span[0]], places[span[0]]))
        else:
            spans.append((places[span[0]], places[span[1] - 1] + 1))
            end = span[1]
    return spans


def _folded(text: str) -> tuple[str, list[int]]:
    """Return a text in a form that others are compared with, and the place in the text of each of its characters.

    Behind the places stands the end of the text.
    """
    parts, places = [], []
    for place, character in enumerate(text):
        simple = unicodedata.normalize("NFKC", character).casefold() or character
        parts.append(simple)
        places += [place] * len(simple)
    return "".join(parts), [*places, len(text)]
