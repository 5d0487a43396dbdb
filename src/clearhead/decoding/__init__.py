"""From source ids to target ids: greedy and beam search, sampling, scoring, and the engine that batches them."""

from clearhead.decoding.engine import SearchOptions, decode, score
from clearhead.decoding.hypothesis import Hypothesis, length_penalty
from clearhead.decoding.packed import PackedModel
from clearhead.decoding.sampling import Sampling

__all__ = ["Hypothesis", "PackedModel", "Sampling", "SearchOptions", "decode", "length_penalty", "score"]
