"""How the tokens of a text read, where they stand in it, and which of them make a word."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from clearhead.protect import Protected
from clearhead.tokenizers import Vocabulary

__all__ = ["UNREADABLE", "Reader", "Span", "Word", "lossless_spans", "token_spans", "visible", "words_of"]

Span = tuple[int, int]
"""First character, and the one behind the last."""

UNREADABLE = "\ufffd"
"""What a piece that is part of a character reads as."""


_SPACES = str.maketrans({" ": "␣", "\u00a0": "⍽", "\u202f": "⍽", "\n": "↵", "\r": "↵", "\t": "⇥"})
_LONGEST_SHOWN = 18
_ZERO_WIDTH_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class Word:
    """What stands between spaces; in scripts without spaces, a token."""

    text: str
    span: Span
    tokens: tuple[int, ...]
    """Places of its tokens, in order."""


@dataclass(frozen=True)
class Reader:
    """Reads tokens as people see them: what stands for a placeholder as the placeholder that it stands for."""

    tokenizer: Vocabulary
    protected: Protected
    """The source, with the signs that its placeholders have."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each target id as it reads."""
        return list(map(self.protected.restored, self.tokenizer.pieces(ids)))

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each source id as it reads."""
        return list(map(self.protected.restored, self.tokenizer.source_pieces(ids)))

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of target ids."""
        return self.protected.restored(self.tokenizer.decode(ids))

    def spans(self, text: str, ids: Sequence[int], own: Sequence[int], pieces: Sequence[str]) -> list[Span | None]:
        """Return where each token stands in a text; None for one that stands for no text.

        Args:
            text: With signs in the place of its placeholders; the spans are those of the original.
            ids: All ids of the side.
            own: Those that spell the text, which stand among them side by side.
            pieces: As the ids read with signs.
        """
        first = next((at for at in range(len(ids) - len(own) + 1) if list(ids[at : at + len(own)]) == list(own)), 0)
        inner: Sequence[Span | None] | None = None
        if self.tokenizer.is_lossless:
            beginnings = self.tokenizer.decode_batch([own[: end + 1] for end in range(len(own))])
            inner = lossless_spans(text, beginnings)
        if inner is None:
            inner = token_spans(text, pieces[first : first + len(own)])
        # Where each character of the text with signs begins in the original, and where that ends.
        places = [0, *accumulate(len(self.protected.restored(character)) for character in text)]
        around: list[Span | None] = [None] * len(ids)
        around[first : first + len(own)] = [
            None if span is None else (places[span[0]], places[span[1]]) for span in inner
        ]
        return around


def visible(token: str) -> str:
    r"""Return a token as a table or a picture shows it: short, without the spaces around it, nothing in it invisible.

    >>> visible(" Hund"), visible(" "), visible("\u200b")
    ('Hund', '␣', '[200B]')
    """
    text = (token.strip() or token).translate(_SPACES)
    text = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
    return "".join(one if one.isprintable() else f"[{ord(one):04X}]" for one in text)


def token_spans(text: str, pieces: Sequence[str | None]) -> list[Span | None]:
    """Return where each piece stands in the text, without the spaces around it.

    Pieces that are not found as they read, such as parts of a character, or of a word that the vocabulary does not
    know, share what stands between those that are. Letter case and compatible forms count for nothing.

    Args:
        text: What was spelled.
        pieces: As they read; None for a token that stands for no text, such as the end token.

    >>> token_spans("Ein Hund", [" Ein", " H", "und", None])
    [(0, 3), (4, 5), (5, 8), None]
    """
    folded, places = _folded(text)
    spans: list[Span | None] = [None] * len(pieces)
    at = 0  # in `folded`
    waiting: list[int] = []

    def share(until: int) -> None:
        """Give what was not found the text up to here."""
        for index in waiting:
            spans[index] = _without_spaces(text, places[at], places[until])
        waiting.clear()

    for index, piece in enumerate(pieces):
        if piece is None:
            continue
        wanted = _folded(piece.strip() or piece)[0]
        behind_spaces = at
        while behind_spaces < len(folded) and folded[behind_spaces].isspace() and not wanted.isspace():
            behind_spaces += 1
        found = folded.find(wanted, behind_spaces) if wanted and UNREADABLE not in wanted else -1
        if found < 0 or (found > behind_spaces and not waiting):
            waiting.append(index)
            continue
        if waiting:
            share(found)
        at = found + len(wanted)
        spans[index] = (places[found], places[at - 1] + 1)
    share(len(folded))
    return spans


def lossless_spans(text: str, beginnings: Sequence[str]) -> list[Span] | None:
    """Return where tokens that spell a text to the letter stand in it, without the spaces around them.

    A token that is part of a character has all of it.

    Args:
        text: What was spelled.
        beginnings: What the first token reads as, the first two, and so on to all of them.

    Returns:
        None if they do not spell the text.
    """
    if beginnings and beginnings[-1] != text:
        return None
    spans, start = [], 0
    for beginning in beginnings:
        whole = beginning
        while not text.startswith(whole):
            if not whole.endswith(UNREADABLE):
                return None
            whole = whole[:-1]
        is_whole = whole == beginning
        spans.append(_without_spaces(text, start, len(whole) if is_whole else min(len(whole) + 1, len(text))))
        start = len(whole)
    return spans


def words_of(text: str, spans: Sequence[Span | None]) -> list[Word]:
    """Return the words of a text that have tokens, in order; a token of spaces alone is in none."""
    groups: list[tuple[Span, list[int]]] = []
    for index, span in enumerate(spans):
        if span is None or not text[span[0] : span[1]].strip():
            continue
        if groups and _are_one_word(text, groups[-1][0], span):
            (start, end), members = groups[-1]
            groups[-1] = ((start, max(end, span[1])), [*members, index])
        else:
            groups.append((span, [index]))
    return [Word(text[start:end], (start, end), tuple(members)) for (start, end), members in groups]


def _without_spaces(text: str, start: int, end: int) -> Span:
    """Return a span without the spaces at its ends, unless it is nothing else."""
    inner = text[start:end].strip()
    if not inner:
        return start, end
    start = text.index(inner, start)
    return start, start + len(inner)


def _are_one_word(text: str, before: Span, span: Span) -> bool:
    if span[0] < before[1]:
        return True  # parts of the same character, or of what was not found piece by piece
    last, first = text[before[1] - 1], text[span[0]]
    is_joined = _ZERO_WIDTH_JOINER in (last, first) or unicodedata.category(first)[0] == "M"  # as in emoji
    return span[0] == before[1] and (is_joined or (_joins(last) and _joins(first)))


def _joins(character: str) -> bool:
    """Tell whether a character makes a word with its neighbours: not spaces, punctuation, nor letters such as 犬."""
    category = unicodedata.category(character)
    return category[0] in "LMN" and (category != "Lo" or not unicodedata.name(character, "").startswith(_SPACELESS))


_SPACELESS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""Beginnings of the names of letters that are written without spaces between words."""


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
