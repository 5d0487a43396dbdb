"""From source ids to target ids: greedy and beam search, sampling, scoring, and the engine that batches them."""

from clearhead.decoding.alignment import learn_shortlist
from clearhead.decoding.compiled import CompiledModel
from clearhead.decoding.engine import SearchOptions, decode, pack, score
from clearhead.decoding.hypothesis import Hypothesis, length_penalty
from clearhead.decoding.packed import PackedModel
from clearhead.decoding.sampling import Sampling
from clearhead.decoding.shortlist import Shortlist

__all__ = [
    "CompiledModel",
    "Hypothesis",
    "PackedModel",
    "Sampling",
    "SearchOptions",
    "Shortlist",
    "decode",
    "learn_shortlist",
    "length_penalty",
    "pack",
    "score",
]
