"""Beam search of batches by plain code, with the settings that a test is about."""

from __future__ import annotations

from typing import Any

from clearhead.config import DecodeConfig
from clearhead.decoding import Hypothesis
from clearhead.decoding.beam_search import BeamObserver, beam_search
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.sentence import sentences_of
from clearhead.decoding.utf8 import CharacterParts
from clearhead.model import Transformer


def plain_search(
    model: Transformer,
    sources: list[list[int]],
    *,
    max_lengths: list[int],
    beam_size: int,
    alpha: float,
    num_best: int = 1,
    prefixes: Any = (),
    parts: CharacterParts | None = None,
    observer: BeamObserver | None = None,
    **settings: Any,
) -> list[list[Hypothesis]]:
    """Return what `beam_search` finds by the code of `Transformer`.

    Args:
        model: The model.
        sources: Source ids of each sentence.
        max_lengths: Maximum target tokens of each.
        beam_size: Hypotheses kept at every step.
        alpha: Exponent of the length penalty.
        num_best: Hypotheses returned for each sentence.
        prefixes: Forced target prefix of each sentence; empty if there are none.
        parts: The tokens that are parts of characters; None if there are none.
        observer: Called with every step.
        **settings: Other settings of the search.
    """
    engine = PlainEngine(model)
    engine.parts = parts
    config = DecodeConfig(beam_size=beam_size, length_penalty=alpha, **settings)
    with engine.computing():
        sentences = sentences_of(sources, max_lengths, prefixes)
        return beam_search(engine, sentences, config, num_best=num_best, observer=observer)
