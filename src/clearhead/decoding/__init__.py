"""From source ids to target ids: greedy and beam search, sampling, scoring, and the engine that batches them."""

from clearhead.decoding.alignment import learn_shortlist
from clearhead.decoding.compiled import CompiledModel
from clearhead.decoding.engine import SearchOptions, decode, length_limits, pack, pack_for_scoring, score
from clearhead.decoding.hypothesis import Hypothesis, length_penalty
from clearhead.decoding.packed import PackedModel
from clearhead.decoding.sampling import Sampling
from clearhead.decoding.scoring import DoubleModel
from clearhead.decoding.shortlist import Shortlist

__all__ = [
    "CompiledModel",
    "DoubleModel",
    "Hypothesis",
    "PackedModel",
    "Sampling",
    "SearchOptions",
    "Shortlist",
    "decode",
    "learn_shortlist",
    "length_limits",
    "length_penalty",
    "pack",
    "pack_for_scoring",
    "score",
]
