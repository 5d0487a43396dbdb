"""Options of a search, and the state of a sentence in greedy or beam search: open and finished hypotheses.

The results equal those of `beam_search.beam_search` and `sampling.greedy_search`, token for token. A hypothesis that
can no longer win is dropped. Hypotheses ranked below it cannot win either, so its place may stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clearhead.config import MOST_MBR_SAMPLES, MOST_SAMPLES, DecodeConfig, Sampling
from clearhead.decoding.engine import Candidates
from clearhead.decoding.rules import can_win, rank_penalty, score_to_beat
from clearhead.decoding.search_state import SearchState
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.decoding.shortlist import Shortlist

BEAMS_OF_TERMS = 3
"""Shared beam size, in multiples of `beam_size`, of the hypotheses that still lack required tokens.

On Multi30k lines with two or more terms, half of it costs 0.5 BLEU and saves a fifth of the time; twice as much gains
0.1 BLEU and takes a fifth more time.
"""
MOST_DIVERSITY = 100.0
"""Maximum diversity penalty, in nats; a token that loses this much is as good as forbidden."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search: beam search, greedy search (`beam_size` 1), or sampling."""

    config: DecodeConfig
    num_best: int = 1
    """Translations returned for each sentence."""
    sampling: Sampling | None = None
    """How to sample; None searches instead."""
    mbr: int | None = None
    """Samples to draw for each sentence for minimum Bayes risk decoding, which returns those most similar to the
    others. None returns the samples as drawn."""
    diversity: float = 0.0
    """Penalty in nats on a token for each better hypothesis that writes it at the same step, so that the n best differ
    (see `batched_sampling.advance_diverse`); 0 is ordinary search."""
    shortlist: Shortlist | None = None
    """Selects the target tokens allowed for each sentence; None allows the whole vocabulary."""
    most_required: int = 0
    """Maximum number of tokens that a translation must contain (see `grid_beam_search`); 0 is ordinary search."""
    scores: bool = True
    """Whether the log-probabilities of the translations are needed; without, a greedy search is faster, and they may be
    NaN."""

    @property
    def num_found(self) -> int:
        """Hypotheses found for each sentence, or samples drawn."""
        return self.mbr or self.num_best

    @property
    def are_samples(self) -> bool:
        """Whether the samples themselves are returned, not a choice of the best."""
        return self.sampling is not None and self.mbr is None

    @property
    def are_separate(self) -> bool:
        """Whether hypotheses do not compete with each other: sampling and diverse search."""
        return self.sampling is not None or self.diversity > 0.0

    @property
    def is_constrained(self) -> bool:
        """Whether any translation has required terms."""
        return self.most_required > 0

    @property
    def most_beams(self) -> int:
        """Maximum number of hypotheses, or samples, of a sentence in flight at once."""
        if self.sampling is not None:
            from clearhead.decoding.batched_sampling import TOGETHER

            return min(self.num_found, TOGETHER)
        widest = max((self.beam_width(number) * number for number in range(1, self.most_required + 1)), default=0)
        return self.config.beam_size + widest

    def beam_width(self, num_tokens: int) -> int:
        """Return the beam size for hypotheses that still lack the same number of required tokens.

        Args:
            num_tokens: Required tokens of the sentence. Hypotheses that lack none have the ordinary beam size.
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
class SearchedSentence(SearchState):
    """The beam search state of a sentence in flight."""

    longest_penalty: float

    def advance(self, candidates: Candidates, eos_id: int, options: SearchOptions) -> None:
        """Extend the hypotheses by the best candidates; finish the ended ones and drop the hopeless ones."""
        config = options.config
        self.length += 1
        scores: list[float] = []
        parents: list[int] = []
        newest: list[int] = []
        for rank, (score, beam, token) in enumerate(candidates):
            if not score > float("-inf") or len(scores) == config.beam_size:  # NaN counts as impossible too
                break
            if token != eos_id:
                scores.append(score)
                parents.append(beam)
                newest.append(token)
            elif rank < config.beam_size:
                self.finish(beam, eos_id, score, rank_penalty(self.length, config))
        open_ones = 0 if self.length == self.sentence.max_length else len(scores)
        if self.finished:  # otherwise there is no score to beat
            to_beat = score_to_beat(self.finished, options.num_best)
            open_ones = min(open_ones, sum(can_win(score, self.longest_penalty, to_beat) for score in scores))
        self.extend(scores[:open_ones], parents[:open_ones], newest[:open_ones])
