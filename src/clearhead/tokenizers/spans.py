"""Character spans of tokens, found by matching pieces; for vocabularies that normalize their text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

UNREADABLE = "\ufffd"
"""The readable form of a piece that is part of a character."""

FARTHEST = 16
"""Maximum distance in characters between a match and the expected position."""


def matched_spans(pieces: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Return the character span (begin, end) of each piece in a text, without its white space.

    A piece with no match nearby, such as an unknown token or part of a character, gets the text between its neighbors.
    Matching ignores letter case and compatibility forms (NFKC).

    Args:
        pieces: Readable pieces, in order; an empty piece has an empty span.
        text: The text that was tokenized.

    >>> matched_spans([" ein", " <unk>", "hund", ""], "Ein ½hund")
    [(0, 3), (4, 5), (5, 9), (9, 9)]
    """
    folded, places = _folded(text)
    matched: list[tuple[int, int] | None] = []  # offsets in `folded`, as are the next
    at = 0
    for piece in pieces:
        own = _folded(piece.strip())[0]
        start = folded.find(own, at, at + len(own) + FARTHEST) if own and UNREADABLE not in own else -1
        if start >= 0:
            at = start + len(own)
            matched.append((start, at))
        else:
            matched.append(None if own else (at, at))
    starts: list[int] = []  # for each piece, start of the next piece with a match
    following = len(folded)
    for span, piece in zip(reversed(matched), reversed(pieces), strict=True):
        if span is not None and piece.strip():
            following = span[0]
        starts.append(following)
    spans: list[tuple[int, int]] = []
    end = 0
    for span, limit in zip(matched, reversed(starts), strict=True):
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
    """Return a text in normalized form for matching, and the original position of each of its characters.

    The positions end with the length of the text.
    """
    parts, places = [], []
    for place, character in enumerate(text):
        simple = unicodedata.normalize("NFKC", character).casefold() or character
        parts.append(simple)
        places += [place] * len(simple)
    return "".join(parts), [*places, len(text)]
