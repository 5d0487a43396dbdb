"""Text in, text out: normalize, segment, search, terms, memory, markup, documents."""

from __future__ import annotations

from clearhead.translation.result import Alternative, MemoryMatch, TermUse, Translation

__all__ = ["Alternative", "MemoryMatch", "TermUse", "Translation"]
