"""Other translations of one segment of a document, and the links between its words and those of its translation."""

from __future__ import annotations

from typing import Unpack

from clearhead.config import DecodeChanges
from clearhead.errors import ConfigError, DataError
from clearhead.text.translatable_lines import segment_lines
from clearhead.text.word_links import Link
from clearhead.translation.translator import Translator


def segment_alternatives(translator: Translator, text: str, count: int, **settings: Unpack[DecodeChanges]) -> list[str]:
    """Return different translations of a segment, best first; the n-th has the n-th best of each of its lines.

    Args:
        translator: The model.
        text: The text of the segment.
        count: Most alternatives.
        **settings: Fields of `DecodeConfig`, as for `Translator.translate`; the beam has at least `count` hypotheses.

    Raises:
        ClearheadError: As `Translator.translate`.
    """
    parts = list(segment_lines(text, translator.translates))
    lines = [part.text for part in parts if part.is_translated]
    changed: DecodeChanges = {**settings, "beam_size": max(count, translator.decode_config(settings).beam_size)}
    translations = translator.translate(lines, num_best=count, one_line=True, **changed)
    ranked = [[other.text for other in one.alternatives] or [one.text] for one in translations]
    found: list[str] = []
    for rank in range(max(map(len, ranked), default=0)):
        chosen = iter([some[min(rank, len(some) - 1)] for some in ranked])
        texts = (next(chosen) if part.is_translated else part.text for part in parts)
        whole = "".join(
            part.before + (part.written(own) or part.text) + part.after for part, own in zip(parts, texts, strict=True)
        )
        if whole not in found:
            found.append(whole)
    return found


def segment_links(translator: Translator, source: str, text: str, **settings: Unpack[DecodeChanges]) -> list[Link]:
    """Return the links between the words of a segment and its translation; none if the model cannot align them.

    Args:
        translator: The model.
        source: The text of the segment.
        text: Its translation.
        **settings: Fields of `DecodeConfig`, as for `Translator.align`.
    """
    try:
        [links] = translator.align([source], [text], **settings)
    except (ConfigError, DataError):  # no cross-attention, or too long a text
        return []
    return links
