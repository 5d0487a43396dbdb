"""Tokens as text: display forms, character spans, and grouping into words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.text.languages import WITHOUT_SPACES, script_of
from clearhead.text.lines import shortened
from clearhead.text.placeholder_masking import Protected
from clearhead.tokenizers import Vocabulary

Span = tuple[int, int]
"""First character, and the one after the last."""

_CONTROLS: dict[str, Any] = {"\n": "↵", "\r": "↵", "\t": "⇥"}
SPACES: dict[str, Any] = {**_CONTROLS, " ": "␣", "\u00a0": "⍽", "\u202f": "⍽"}
"""White space with the sign that is shown for it."""
_HARMLESS = "\u00a0\u202f\u200c\u200d"
LONGEST_SHOWN = 18
_ZERO_WIDTH_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class TokenWord:
    """A run of characters between spaces; in scripts without spaces, a token."""

    text: str
    span: Span
    tokens: tuple[int, ...]
    """Indices of its tokens, in order."""


@dataclass(frozen=True)
class Reader:
    """Converts tokens to text, with the placeholder characters replaced by the original placeholders."""

    tokenizer: Vocabulary
    protected: Protected
    """The source with its placeholders replaced by special characters."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each target id as text."""
        return list(map(self.protected.restored, self.tokenizer.pieces(ids)))

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each source id as text."""
        return list(map(self.protected.restored, self.tokenizer.source_pieces(ids)))

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of target ids."""
        return self.protected.restored(self.tokenizer.decode(ids))

    def source_spans(self, ids: Sequence[int]) -> list[Span | None]:
        """Return the span of each source id in the source, without surrounding spaces; None for an id without text."""
        return self._spans(self.protected.text, self.tokenizer.source_spans(ids, self.protected.text))

    def target_spans(self, text: str, ids: Sequence[int]) -> list[Span | None]:
        """Return the span of each target id in the target, without surrounding spaces; None for an id without text.

        Args:
            text: The target, with special characters for its placeholders; the spans are those of the original.
            ids: All ids of the target.
        """
        return self._spans(text, self.tokenizer.target_spans(ids, text))

    def _spans(self, text: str, spans: Sequence[Span]) -> list[Span | None]:
        original = self.protected.restored(text)
        restored = self.protected.restored_spans(text, spans)
        return [_without_spaces(original, *span) if span[0] < span[1] else None for span in restored]


def visible(token: str) -> str:
    r"""Return a token for a table or figure: short, without surrounding spaces, and with invisible characters shown.

    >>> visible(" Hund"), visible(" "), visible("\u200b")
    ('Hund', '␣', '[200B]')
    """
    text = (token.strip() or token).translate(str.maketrans(SPACES))
    return _coded(shortened(text, LONGEST_SHOWN))


def printable(text: str) -> str:
    r"""Return a text in one line, with codes for what a terminal would obey or not show; joiners and spaces stay.

    >>> printable("a\x1b[2J\tb")
    'a[001B][2J⇥b'
    """
    return _coded(text.translate(str.maketrans(_CONTROLS)), but=_HARMLESS)


def _coded(text: str, *, but: str = "") -> str:
    return "".join(char if char.isprintable() or char in but else f"[{ord(char):04X}]" for char in text)


def token_words(text: str, spans: Sequence[Span | None]) -> list[TokenWord]:
    """Return the words of a text that have tokens, in order; tokens of spaces only belong to none."""
    groups: list[tuple[Span, list[int]]] = []
    for index, span in enumerate(spans):
        if span is None or not text[span[0] : span[1]].strip():
            continue
        if groups and _are_one_word(text, groups[-1][0], span):
            (start, end), members = groups[-1]
            groups[-1] = ((start, max(end, span[1])), [*members, index])
        else:
            groups.append((span, [index]))
    return [TokenWord(text[start:end], (start, end), tuple(members)) for (start, end), members in groups]


def _without_spaces(text: str, start: int, end: int) -> Span:
    """Return a span without the spaces at its ends, unless it contains only spaces."""
    inner = text[start:end].strip()
    if not inner:
        return start, end
    start = text.index(inner, start)
    return start, start + len(inner)


def _are_one_word(text: str, before: Span, span: Span) -> bool:
    if span[0] < before[1]:
        return True  # parts of the same character, or of a text that was not located piece by piece
    last, first = text[before[1] - 1], text[span[0]]
    is_joined = _ZERO_WIDTH_JOINER in (last, first) or unicodedata.category(first)[0] == "M"  # as in emoji
    return span[0] == before[1] and (is_joined or (_joins(last) and _joins(first)))


def _joins(character: str) -> bool:
    """Return whether a character forms words with its neighbours; spaces, punctuation and letters such as 犬 do not."""
    category = unicodedata.category(character)
    return category[0] in "LMN" and (category != "Lo" or script_of(character) not in WITHOUT_SPACES)
