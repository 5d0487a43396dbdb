"""Decoding: greedy and beam search, sampling, scoring, and the fast inference engines."""

from typing import TYPE_CHECKING

from clearhead.config import Sampling
from clearhead.decoding.decode import decode, make_engine, require_computable, score
from clearhead.decoding.engine import Engine
from clearhead.decoding.ensemble import Ensemble
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.rules import Hypothesis, SearchOptions, cut_sources, length_limits, length_penalty
from clearhead.decoding.sentence import NO_PREFIX, Prefix, given_prefix
from clearhead.decoding.shortlist import Shortlist
from clearhead.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from clearhead.decoding.batched_sampling import expected_chrf
    from clearhead.decoding.constraints import Required, RequiredTerm, TokenSequence, WordEdges
    from clearhead.decoding.pytorch.engine import PyTorchEngine
    from clearhead.decoding.shortlist_learning import learn_shortlist

# Imported on first use, because they need PyTorch, or most searches do not need them.
if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "PyTorchEngine": "pytorch.engine",
            **dict.fromkeys(("Required", "RequiredTerm", "TokenSequence", "WordEdges"), "constraints"),
            "expected_chrf": "batched_sampling",
            "learn_shortlist": "shortlist_learning",
        },
    )

__all__ = [
    "NO_PREFIX",
    "Engine",
    "Ensemble",
    "Hypothesis",
    "NativeEngine",
    "Prefix",
    "PyTorchEngine",
    "Required",
    "RequiredTerm",
    "Sampling",
    "SearchOptions",
    "Shortlist",
    "TokenSequence",
    "WordEdges",
    "cut_sources",
    "decode",
    "expected_chrf",
    "given_prefix",
    "learn_shortlist",
    "length_limits",
    "length_penalty",
    "make_engine",
    "require_computable",
    "score",
]
