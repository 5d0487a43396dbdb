"""Options, hypotheses and rules of all searches: never-written tokens, length limits, length penalty, when to stop.

Both the plain searches (`beam_search`, `sampling`) and the batched one (`scheduler`) take their rules from here and
from `token_masks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clearhead.config import MOST_MBR_SAMPLES, MOST_SAMPLES, DecodeConfig, ModelConfig, Sampling
from clearhead.config.choices import PenaltyForm
from clearhead.decoding.sentence import Prefix
from clearhead.errors import ConfigError
from clearhead.model.stored import DAMAGED

if TYPE_CHECKING:
    from clearhead.decoding.shortlist import Shortlist

BEAMS_OF_TERMS = 3
"""Shared beam size, in multiples of `beam_size`, of the hypotheses that still lack required tokens.

On Multi30k lines with two or more terms, half of it costs 0.5 BLEU and saves a fifth of the time; twice as much gains
0.1 BLEU and takes a fifth more time.
"""
MOST_DIVERSITY = 100.0
"""Maximum diversity penalty, in nats; a token that loses this much is as good as forbidden."""
TOGETHER = 16
"""Samples of one sentence that are drawn at the same time."""


class Hypothesis(NamedTuple):
    """One output of a search."""

    tokens: tuple[int, ...]
    """Target ids; the last one is `eos_id`."""
    log_prob: float
    """Sum of the log-probabilities of all tokens, in nats, as the search added them. In fp32 the compiled core's sum
    equals the score of the same tokens. Other precisions round it, and a shortlist normalizes over fewer tokens. NaN if
    it was not asked for (`SearchOptions.scores`)."""
    rank_score: float
    """The ranking score: `log_prob`, divided by the length penalty in beam search."""
    was_ended: bool = False
    """Whether the length limit or the repetition rule ended it, not the model."""


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


def length_penalty(length: int, alpha: float, form: PenaltyForm = "gnmt") -> float:
    """Return the divisor of a log-probability by which hypotheses are compared.

    Args:
        length: Target tokens, the end token included.
        alpha: Exponent; 0 ranks by probability alone (paper: 0.6).
        form: `gnmt` is ((5 + length) / (5 + 1)) ** alpha (Wu et al. 2016, equation 14; the paper's); `power` is
            length ** alpha (Hugging Face, fairseq).

    >>> round(length_penalty(5, 0.6), 4)
    1.3587
    """
    return float(((5 + length) / 6 if form == "gnmt" else length) ** alpha)


NO_NUMBERS = f"the model's probabilities are not numbers, as where weights hold NaN or infinity: {DAMAGED}"
NO_NUMBERS_IN_FP16 = (
    "the model's probabilities are not numbers in fp16, which has none above 65,504; use --precision bf16 or fp32"
)


def never_written(config: ModelConfig) -> list[int]:
    """Return the tokens that no output contains: padding, and the start token unless it is also the end token.

    Placeholders are never written either, except those of the source, which a mask then allows (`token_masks`). A
    decoder-only model has no padding and no start token; their ids are ordinary text.
    """
    if config.is_decoder_alone:
        return []
    placeholders = range(config.first_placeholder, config.vocab_size)
    return sorted({config.pad_id, config.bos_id, *placeholders} - {config.eos_id})


def first_token(model: ModelConfig, source: Sequence[int]) -> int:
    """Return the first decoder input: the start token, or for a decoder-only model the last source token.

    Args:
        model: The model configuration.
        source: Source ids; for a decoder-only model the text to continue.
    """
    return source[-1] if model.is_decoder_alone else model.bos_id


def cut_sources(
    model: ModelConfig, config: DecodeConfig, sources: Sequence[list[int]], *, begun: int = 0
) -> list[list[int]]:
    """Return the sources, truncated to `max_input_tokens` and to the model's positions.

    Args:
        model: The model configuration, whose `max_length` may limit the positions.
        config: The decoding settings; only `max_input_tokens` and `extra_length` are used.
        sources: Source ids of each sentence, ended by `eos_id`; truncated ones end with it too. For a decoder-only
            model the end of the text is kept, and positions are reserved for the output: at most half of them.
        begun: Tokens of the longest prefix, which a decoder-only model needs positions for as well.
    """
    if model.is_decoder_alone:
        limit = config.max_input_tokens
        if model.max_length is not None:
            room = model.max_length - min(config.extra_length, model.max_length // 2) - begun
            limit = max(1, min(limit, room))
        return [ids[-limit:] for ids in sources]
    limit = int(min(config.max_input_tokens, model.max_length or math.inf))
    return [ids if len(ids) <= limit else [*ids[: limit - 1], model.eos_id] for ids in sources]


def length_limits(
    model: ModelConfig, config: DecodeConfig, sources: Sequence[Sequence[int]], prefixes: Sequence[Prefix] = ()
) -> list[int]:
    """Return the maximum target tokens of each sentence, end token included.

    A translation of that length was ended by the limit. The limit is `extra_length` more than the source or the prefix
    has, whichever is longer. A decoder-only model continues its source and shares its positions, so only the prefix
    counts there.

    Args:
        model: The model configuration, whose `max_length` may limit the positions.
        config: The decoding settings; only `extra_length` is used.
        sources: Source ids of each sentence, ended by `eos_id`.
        prefixes: Forced target prefix of each sentence, which may be longer than the source; empty if there are none.

    Raises:
        ValueError: If a prefix leaves no position for the end token.
    """
    rooms = [model.max_length or math.inf] * len(sources)
    lengths = list(map(len, sources))
    if model.is_decoder_alone:
        rooms, lengths = [room - length for room, length in zip(rooms, lengths, strict=True)], [0] * len(sources)
    if prefixes:
        lengths = [max(length, len(prefix.tokens)) for length, prefix in zip(lengths, prefixes, strict=True)]
        for prefix, room in zip(prefixes, rooms, strict=True):
            if len(prefix.tokens) >= room:
                raise ValueError(f"a prefix has as many tokens as the model has positions ({room}) or more")
    return [int(min(length + config.extra_length, room)) for length, room in zip(lengths, rooms, strict=True)]


def check_ids(sentences: Sequence[Sequence[int]], vocab_size: int, pad_id: int | None, side: str) -> None:
    """Check that every sentence has ids, that all are in the vocabulary, and that none is padding.

    Args:
        sentences: Ids of each sentence.
        vocab_size: Number of tokens in the vocabulary.
        pad_id: The padding token; None if there is none.
        side: "source" or "target", for messages.

    Raises:
        IndexError: If an id is not in the vocabulary.
        ValueError: If a sentence has no ids, or contains padding, which attention would ignore.
    """
    for number, ids in enumerate(sentences):
        if not ids:
            raise ValueError(f"sentence {number} has no {side} ids, not even the end token")
        if not 0 <= min(ids) <= max(ids) < vocab_size:
            raise IndexError(f"sentence {number} has a {side} id that is not in the vocabulary of {vocab_size}")
        if pad_id in ids:
            raise ValueError(f"sentence {number} has {side} ids that are padding ({pad_id}); leave them out")


def candidates_of_row(beam_size: int) -> int:
    """Return how many next tokens of a hypothesis can matter: 1 in greedy search, else the end token and K others."""
    return 1 if beam_size == 1 else beam_size + 1


def candidates_of_sentence(beam_size: int) -> int:
    """Return how many candidates of a sentence can matter: at most K of the best 2 K end, so K stay open."""
    return 1 if beam_size == 1 else 2 * beam_size


def rank_penalty(length: int, config: DecodeConfig) -> float:
    """Return the divisor of a log-probability for ranking; 1 in greedy search, which compares nothing."""
    return length_penalty(length, config.length_penalty, config.length_penalty_form) if config.beam_size > 1 else 1.0


def score_to_beat(finished: Sequence[Hypothesis], num_best: int) -> float:
    """Return the rank score that a new hypothesis must exceed; minus infinity if fewer than `num_best` are finished."""
    if len(finished) < num_best:
        return float("-inf")
    return sorted(hypothesis.rank_score for hypothesis in finished)[-num_best]


def can_win(log_prob: float, longest_penalty: float, to_beat: float) -> bool:
    """Return whether an open hypothesis can still be among the best.

    Log-probabilities only decrease, so its upper bound is the present one over the penalty of the longest output.
    """
    return log_prob / longest_penalty > to_beat
