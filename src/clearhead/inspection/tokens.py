"""How the tokens of a text read, where they stand in it, and which of them make a word."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.text.placeholder_masking import Protected
from clearhead.tokenizers import Vocabulary

__all__ = ["Reader", "Span", "Word", "printable", "visible", "words_of"]

Span = tuple[int, int]
"""First character, and the one behind the last."""

_CONTROLS = str.maketrans({"\n": "↵", "\r": "↵", "\t": "⇥"})
_SPACES = {**_CONTROLS, **str.maketrans({" ": "␣", "\u00a0": "⍽", "\u202f": "⍽"})}
_HARMLESS = "\u00a0\u202f\u200c\u200d"
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

    def source_spans(self, ids: Sequence[int]) -> list[Span | None]:
        """Return where each source id stands in the source, spaces around it left out; None for one that is no text."""
        return self._spans(self.protected.text, self.tokenizer.source_spans(ids, self.protected.text))

    def target_spans(self, text: str, ids: Sequence[int]) -> list[Span | None]:
        """Return likewise where target ids stand.

        Args:
            text: The target, with signs in the place of its placeholders; the spans are those of the original.
            ids: All ids of the target.
        """
        return self._spans(text, self.tokenizer.target_spans(ids, text))

    def _spans(self, text: str, spans: Sequence[Span]) -> list[Span | None]:
        original = self.protected.restored(text)
        restored = self.protected.restored_spans(text, spans)
        return [_without_spaces(original, *span) if span[0] < span[1] else None for span in restored]


def visible(token: str) -> str:
    r"""Return a token as a table or a picture shows it: short, without the spaces around it, nothing in it invisible.

    >>> visible(" Hund"), visible(" "), visible("\u200b")
    ('Hund', '␣', '[200B]')
    """
    text = (token.strip() or token).translate(_SPACES)
    return _coded(text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…")


def printable(text: str) -> str:
    r"""Return a text in one line, with codes for what a terminal would obey or not show; joiners and spaces stay.

    >>> printable("a\x1b[2J\tb")
    'a[001B][2J⇥b'
    """
    return _coded(text.translate(_CONTROLS), but=_HARMLESS)


def _coded(text: str, *, but: str = "") -> str:
    return "".join(one if one.isprintable() or one in but else f"[{ord(one):04X}]" for one in text)


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
