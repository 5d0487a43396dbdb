"""The one thing every corpus reader yields: a source segment, its translation, and where they stood."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SentencePair"]


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A segment and its translation, as they stand in the file: nothing stripped, nothing normalised."""

    source: str
    """Text to translate; may be blank, cleaning counts and drops it."""
    target: str
    """Its translation; may be blank as well."""
    origin: str
    """`file:line` of the source side, lines counted from 1."""
    language: str | None = None
    """What a language tag at the head of the source names; cleaning looks for one."""
    text_at: int = 0
    """Where the source's text begins, behind that tag."""

    @property
    def text(self) -> str:
        """The source without its language tag."""
        return self.source[self.text_at :]
