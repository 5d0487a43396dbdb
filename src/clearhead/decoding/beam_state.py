"""Greedy and beam search, decided sentence by sentence: which hypotheses go on, which have ended, and when to stop.

It finds what `beam.beam_search` and `sampling.greedy_search` find, token for token. A hypothesis that can no longer win
is dropped, and with it what would come of it; whatever ranks below it cannot win either, so its place may stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clearhead.config import MOST_MBR_SAMPLES, MOST_SAMPLES, DecodeConfig, Sampling
from clearhead.decoding.batched_sampling import TOGETHER
from clearhead.decoding.engine import Beams, Candidates
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.rules import can_win, rank_penalty, score_to_beat
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.errors import ConfigError

__all__ = ["SearchOptions", "SearchedSentence", "begin"]


BEAMS_OF_TERMS = 3
"""Beams' width that hypotheses share which lack tokens that a translation must contain. Of Multi30k's lines with two
terms or more, half of that costs 0.5 BLEU and saves a fifth of the time; twice as much gains 0.1 and costs as much."""
MOST_DIVERSITY = 100.0
"""Nats; a token that loses so many is as good as forbidden."""


@dataclass(frozen=True)
class SearchOptions:
    """What to search for: beam search, greedy search (`beam_size` 1), or samples."""

    config: DecodeConfig
    num_best: int = 1
    """Translations returned for each sentence."""
    sampling: Sampling | None = None
    """Draw at random instead of searching."""
    mbr: int | None = None
    """Samples to draw for each sentence, of which those are wanted that are most like the others; None wants those
    that were drawn."""
    diversity: float = 0.0
    """Nats that a token loses for each better hypothesis that writes it at the same step, so that the n best differ
    (see `diversity`); 0 is ordinary search."""
    shortlist: Shortlist | None = None
    """What each sentence may be written in; None allows the whole vocabulary."""
    most_required: int = 0
    """Tokens that any translation must contain, at most (see `constrained`); with 0 it is ordinary search."""

    @property
    def num_found(self) -> int:
        """Hypotheses found for each sentence, or samples drawn."""
        return self.mbr or self.num_best

    @property
    def are_samples(self) -> bool:
        """Whether what is wanted is what was drawn, not the best of it."""
        return self.sampling is not None and self.mbr is None

    @property
    def are_separate(self) -> bool:
        """Whether no hypothesis takes the place of another: samples, and diverse search."""
        return self.sampling is not None or self.diversity > 0.0

    @property
    def is_constrained(self) -> bool:
        """Whether translations must contain something."""
        return self.most_required > 0

    @property
    def most_beams(self) -> int:
        """Hypotheses, or samples, of a sentence that are in flight at once, at most."""
        if self.sampling is not None:
            return min(self.num_found, TOGETHER)
        widest = max((self.beam_width(number) * number for number in range(1, self.most_required + 1)), default=0)
        return self.config.beam_size + widest

    def beam_width(self, num_tokens: int) -> int:
        """Return how many hypotheses of a sentence lack a number of tokens that its translation must contain.

        Args:
            num_tokens: That it must contain; those that lack none are as many as in any search.
        """
        return max(1, min(self.config.beam_size, BEAMS_OF_TERMS * self.config.beam_size // num_tokens))

    def __post_init__(self) -> None:
        if not 1 <= self.num_best <= MOST_SAMPLES:
            raise ConfigError(f"nbest ({self.num_best}) must be at least 1 and at most {MOST_SAMPLES:,}")
        if self.sampling is None and self.num_best > self.config.beam_size:
            raise ConfigError(
                f"nbest ({self.num_best}) must not be more than the beam size ({self.config.beam_size}); "
                f"use --beam {self.num_best}"
            )
        self._require_diversity_with_a_meaning()
        if self.mbr is not None:
            if self.sampling is None:
                raise ConfigError("mbr chooses among samples: say how they are drawn (sampling)")
            if not 2 <= self.mbr <= MOST_MBR_SAMPLES:
                raise ConfigError(f"mbr ({self.mbr}) must be at least 2 samples and at most {MOST_MBR_SAMPLES:,}")
            if self.num_best > self.mbr:
                raise ConfigError(
                    f"nbest ({self.num_best}) must not be more than the samples to choose from, mbr ({self.mbr})"
                )
        if self.sampling is not None and (self.shortlist is not None or self.config.shortlist):
            raise ConfigError("a shortlist has no meaning for samples, which are drawn from the whole vocabulary")

    def _require_diversity_with_a_meaning(self) -> None:
        if not 0.0 <= self.diversity <= MOST_DIVERSITY:
            raise ConfigError(f"diversity ({self.diversity}) must be at least 0 and at most {MOST_DIVERSITY:g}")
        if not self.diversity:
            return
        if self.num_best == 1:
            raise ConfigError("diversity is that of the n best translations: ask for several (--nbest N, num_best)")
        if self.sampling is not None:
            raise ConfigError("diversity has no meaning for samples, which differ by chance")
        if self.shortlist is not None or self.config.shortlist:
            raise ConfigError("diverse search looks at the whole vocabulary; it has no shortlist")


@dataclass
class SearchedSentence(Beams):
    """A sentence in flight."""

    sentence: Sentence
    allowed: AllowedTokens
    longest_penalty: float
    written: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    """The tokens of each open hypothesis."""
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, candidates: Candidates, eos_id: int, options: SearchOptions) -> None:
        """Take the best candidates."""
        config, most = options.config, self.sentence.max_length
        self.length += 1
        scores: list[float] = []
        parents: list[int] = []
        newest: list[int] = []
        for rank, (score, beam, token) in enumerate(candidates):
            if not score > float("-inf") or len(scores) == config.beam_size:  # NaN is no score either
                break
            if token != eos_id:
                scores.append(0.0 if self.length <= self.sentence.prefix.given else score)
                parents.append(beam)
                newest.append(token)
            elif rank < config.beam_size:
                rank_score = score / rank_penalty(self.length, config)
                tokens = (*self.written[beam], eos_id)
                was_ended = self.masks[beam] is self.allowed.end
                self.finished.append(Hypothesis(tokens, score, rank_score, was_ended))
        open_ones = 0 if self.length == most else len(scores)
        if self.finished:  # else there is nothing to beat
            to_beat = score_to_beat(self.finished, options.num_best)
            open_ones = min(open_ones, sum(can_win(score, self.longest_penalty, to_beat) for score in scores))
        self.scores, self.parents, self.newest = scores[:open_ones], parents[:open_ones], newest[:open_ones]
        before = self.written
        self.written = [(*before[beam], token) for beam, token in zip(self.parents, self.newest, strict=True)]
        self.masks = [self.allowed.after(tokens, self.sentence) for tokens in self.written]

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best hypotheses that have ended, best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.rank_score)[:num_best]


def begin(sentence: Sentence, bos_id: int, allowed: AllowedTokens, config: DecodeConfig) -> SearchedSentence:
    """Return a sentence whose translation is still empty."""
    masks, longest_penalty = [allowed.after((), sentence)], rank_penalty(sentence.max_length, config)
    return SearchedSentence([0.0], [bos_id], [0], masks, 0, sentence, allowed, longest_penalty)
