"""Similar pairs of a memory for the segments to translate, tokenized as the model reads them.

A pair goes through the same preprocessing as a line. It is left out if its translation has a placeholder or a tag that
the segment lacks and the model has no token for: the search could write it.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import Engine
from clearhead.decoding.neighbours import Neighbours, Pair, automatic_weight
from clearhead.errors import ConfigError
from clearhead.text.quality_flags import missing_placeholders
from clearhead.translation.memory import Retrieve
from clearhead.translation.normalization import Normalizer
from clearhead.translation.pair_encoding import PairEncoder
from clearhead.translation.result import MemoryMatch
from clearhead.translation.segment import Segment

WHO_CONSULTS = "only a single encoder-decoder on the CPU consults a memory, by the compiled core or plain"
"""For messages."""


def consults(engine: Engine, config: DecodeConfig) -> bool:
    """Return whether searches of an engine consult a memory: `memory_weight` is not 0, and the engine can.

    Raises:
        ConfigError: If `memory_weight` is set, and the engine cannot.
    """
    weight = config.memory_weight
    if weight == 0 or engine.consults_neighbours:
        return weight != 0
    if weight is None:
        return False
    raise ConfigError(f"memory_weight: {WHO_CONSULTS}; leave it out, or set it to 0")


class NeighbourFinder:
    """Sets the neighbours of segments.

    Args:
        pair_encoder: Tokenizes pairs.
        normalize: Normalizes sources.
        model: Configuration of the model.
    """

    def __init__(self, pair_encoder: PairEncoder, normalize: Normalizer, model: ModelConfig) -> None:
        self._pair_encoder, self._normalize, self._model = pair_encoder, normalize, model

    def __call__(self, segments: Sequence[Segment], retrieve: Retrieve, config: DecodeConfig) -> None:
        """Set the neighbours of segments; the arguments are those of `found`."""
        for segment in segments:
            segment.neighbours, _ = self.found(segment, retrieve, config)

    def found(
        self, segment: Segment, retrieve: Retrieve, config: DecodeConfig
    ) -> tuple[Neighbours | None, list[MemoryMatch]]:
        """Return the neighbours of a segment, and the same pairs as text; None if it has none, or their weight is 0.

        Args:
            segment: The segment.
            retrieve: Returns the entries of a memory that are most similar to a text.
            config: Only `memory_weight`, `max_input_tokens`, `source_lang`, `familiar` and `protect_numbers` are used.
        """
        weight = config.memory_weight
        matches = [] if weight == 0 else list(retrieve(segment.original) or ())
        pairs = self._pairs(segment, matches, config)
        kept = [matches[number] for number in pairs]
        if weight is None and kept:
            weight = automatic_weight(kept[0].similarity)
        return (Neighbours(tuple(pairs.values()), weight), kept) if kept and weight else (None, [])

    def _pairs(self, segment: Segment, matches: Sequence[MemoryMatch], config: DecodeConfig) -> dict[int, Pair]:
        """Return the pairs that the model can read, by the index of their match."""
        sources = [self._normalize(match.source, config, segment.language).text for match in matches]
        parts, targets = [(segment.language, source) for source in sources], [match.target for match in matches]
        read = self._pair_encoder.tokenized(parts, targets, config)
        longest = min(config.max_input_tokens, self._model.max_length or config.max_input_tokens)
        return {
            number: Pair(tuple(pair.source_ids), tuple(pair.target_ids))
            for number, pair in enumerate(read)
            if max(len(pair.source_ids), len(pair.target_ids)) <= longest
            and not missing_placeholders(pair.protected_target, segment.protected.text)
        }
