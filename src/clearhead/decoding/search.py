"""Greedy and beam search, decided sentence by sentence: which hypotheses go on, which have ended, and when to stop.

It finds what `beam.beam_search` and `sampling.greedy_search` find, token for token. A hypothesis that can no longer win
is dropped, and with it what would come of it; whatever ranks below it cannot win either, so its place may stay empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clearhead.config import MOST_SAMPLES, DecodeConfig, Sampling
from clearhead.decoding.engine import Beams, Candidates
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.rules import can_win, rank_penalty, score_to_beat
from clearhead.decoding.shortlist import Shortlist
from clearhead.errors import ConfigError

__all__ = ["SearchOptions", "SearchedSentence", "Sentence", "begin"]

Prefix = tuple[Any, int] | None
"""The tokens of a hypothesis, from the newest back: the prefix before it, and its token. Beginnings are shared."""


@dataclass(frozen=True)
class SearchOptions:
    """What to search for: beam search, greedy search (`beam_size` 1), or samples."""

    config: DecodeConfig
    num_best: int = 1
    """Translations returned for each sentence."""
    sampling: Sampling | None = None
    """Draw at random instead of searching."""
    shortlist: Shortlist | None = None
    """What each sentence may be written in; None allows the whole vocabulary."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_best <= MOST_SAMPLES:
            raise ConfigError(f"nbest ({self.num_best}) must be at least 1 and at most {MOST_SAMPLES:,}")
        if self.sampling is None and self.num_best > self.config.beam_size:
            raise ConfigError(
                f"nbest ({self.num_best}) must not be more than the beam size ({self.config.beam_size}); "
                f"use --beam {self.num_best}"
            )
        if self.sampling is not None and (self.shortlist is not None or self.config.shortlist):
            raise ConfigError("a shortlist has no meaning for samples, which are drawn from the whole vocabulary")


@dataclass(frozen=True)
class Sentence:
    """A sentence to search for."""

    number: int
    source: Sequence[int]
    """Source ids, ended by `eos_id`."""
    max_length: int
    """Most target tokens, the end token included."""


@dataclass
class SearchedSentence(Beams):
    """A sentence in flight."""

    sentence: Sentence
    longest_penalty: float
    prefixes: list[Prefix] = field(default_factory=lambda: [None])
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, candidates: Candidates, eos_id: int, options: SearchOptions) -> None:
        """Take the best candidates."""
        config = options.config
        self.length += 1
        scores: list[float] = []
        parents: list[int] = []
        newest: list[int] = []
        for rank, (score, beam, token) in enumerate(candidates):
            if not score > float("-inf") or len(scores) == config.beam_size:  # NaN is no score either
                break
            if token != eos_id:
                scores.append(score)
                parents.append(beam)
                newest.append(token)
            elif rank < config.beam_size:
                tokens = (*_tokens(self.prefixes[beam]), eos_id)
                rank_score = score / rank_penalty(self.length, config)
                self.finished.append(Hypothesis(tokens, score, rank_score, self.length == self.max_length))
        open_ones = 0 if self.length == self.max_length else len(scores)
        if self.finished:  # else there is nothing to beat
            to_beat = score_to_beat(self.finished, options.num_best)
            open_ones = min(open_ones, sum(can_win(score, self.longest_penalty, to_beat) for score in scores))
        self.prefixes = [(self.prefixes[beam], token) for beam, token in zip(parents[:open_ones], newest, strict=False)]
        self.scores, self.parents, self.newest = scores[:open_ones], parents[:open_ones], newest[:open_ones]

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best hypotheses that have ended, best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.rank_score)[:num_best]


def begin(sentence: Sentence, bos_id: int, config: DecodeConfig) -> SearchedSentence:
    """Return a sentence whose translation is still empty."""
    longest = sentence.max_length
    return SearchedSentence([0.0], [bos_id], [0], 0, longest, sentence, rank_penalty(longest, config))


def _tokens(prefix: Prefix) -> list[int]:
    tokens = []
    while prefix is not None:
        prefix, token = prefix
        tokens.append(token)
    return tokens[::-1]
