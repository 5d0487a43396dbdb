"""Other translations of one segment of a document, and the links between its words and those of its translation."""

from __future__ import annotations

from typing import Unpack

from clearhead.config import DecodeChanges
from clearhead.errors import ConfigError, DataError
from clearhead.text.translatable_lines import segment_lines
from clearhead.text.word_links import Span, words_of
from clearhead.translation.result import Alternative
from clearhead.translation.translator import Translator


def segment_alternatives(
    translator: Translator, text: str, count: int, **settings: Unpack[DecodeChanges]
) -> list[Alternative]:
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
    ranked = [one.alternatives or (Alternative(one.text, one.score),) for one in translations]
    found: dict[str, Alternative] = {}
    for rank in range(max(map(len, ranked), default=0)):
        chosen = [some[min(rank, len(some) - 1)] for some in ranked]
        words = iter(chosen)
        texts = (next(words).text if part.is_translated else part.text for part in parts)
        whole = "".join(
            part.before + (part.written(own) or part.text) + part.after for part, own in zip(parts, texts, strict=True)
        )
        scores = [one.score for one in chosen if one.score is not None]
        score = sum(scores) if len(scores) == len(chosen) else None
        found.setdefault(whole, Alternative(whole, score))
    return list(found.values())


def segment_links(
    translator: Translator, source: str, text: str, **settings: Unpack[DecodeChanges]
) -> list[tuple[Span, Span]]:
    """Return the spans of linked words of a segment and its translation; none if the model cannot align them.

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
    sources, targets = words_of(source), words_of(text)
    return [(sources[own], targets[other]) for own, other in links]
