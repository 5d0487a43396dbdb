"""What is known of the text that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clearhead.text.line_statistics import LineCounter, LineStatistics


def counted(
    pairs: Iterable[tuple[str, str]],
    language: str | None = None,
    tokens: tuple[int, int] | None = None,
    characters: str = "",
) -> LineStatistics:
    """Count pairs of lines.

    Args:
        pairs: Source and target.
        language: That of the sources.
        tokens: Tokens of every source and target; None is a token for each word, and one for the end.
        characters: Characters of both sides beside those of the lines.
    """
    counter = LineCounter(language)
    for source, target in pairs:
        counter.add(source, target, *(tokens or (len(source.split()) + 1, len(target.split()) + 1)))
    counter.add_characters(characters, characters)
    return counter.statistics()


def info_of(statistics: LineStatistics) -> dict[str, Any]:
    """Return what a model directory says of them."""
    return {"data": {"line_statistics": statistics.model_dump(mode="json")}}
