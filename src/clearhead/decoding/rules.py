"""What every search keeps to: which tokens may be written, how many, and which hypotheses can still win.

The readable searches (`beam`, `sampling`) and the fast one (`search`, with the engines) take these rules from here, and
from `allowed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding.hypothesis import Hypothesis, length_penalty
from clearhead.decoding.sentence import Prefix

__all__ = [
    "can_win",
    "candidates_of_row",
    "candidates_of_sentence",
    "check_ids",
    "cut_sources",
    "first_token",
    "length_limits",
    "never_written",
    "rank_penalty",
    "score_to_beat",
]


def never_written(config: ModelConfig) -> list[int]:
    """Return the tokens that no output holds: padding, and the start token unless it is also the end token.

    A placeholder is one too, unless it is the source's: then a mask allows it (`allowed`). A decoder alone knows
    neither padding nor start: what has their ids is text.
    """
    if config.is_decoder_alone:
        return []
    placeholders = range(config.first_placeholder, config.vocab_size)
    return sorted({config.pad_id, config.bos_id, *placeholders} - {config.eos_id})


def first_token(model: ModelConfig, source: Sequence[int]) -> int:
    """Return what a target starts from: the start token, or to a decoder alone the last token of what it goes on with.

    Args:
        model: Its settings.
        source: Source ids; of a decoder alone those of the text that it goes on with.
    """
    return source[-1] if model.is_decoder_alone else model.bos_id


def cut_sources(
    model: ModelConfig, config: DecodeConfig, sources: Sequence[list[int]], *, begun: int = 0
) -> list[list[int]]:
    """Return sources of which no more is read than `max_input_tokens`, and than the model has positions for.

    Args:
        model: Whose positions may have an end.
        config: Of which `max_input_tokens` counts.
        sources: Source ids of each sentence, ended by `eos_id`; those that are cut end with it too. Of a text that a
            decoder alone goes on with, the end is kept, and room for what it writes: half of the positions at most.
        begun: Tokens of the longest prefix, which a decoder alone needs room for as well.
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
    """Return the most target tokens of each sentence, the end token included; one that has so many was ended there.

    A decoder alone goes on with its source: the two share its positions, and both are as much longer than the source.

    Args:
        model: Whose positions may have an end.
        config: Of which `extra_length` counts.
        sources: Source ids of each sentence, ended by `eos_id`.
        prefixes: What the translation of each begins with, which may be longer than the source; none is given for none.

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
    """See that every sentence has ids, that all of them are in the vocabulary, and that none is padding.

    Args:
        sentences: Ids of each.
        vocab_size: Rows of the vocabulary.
        pad_id: Of the padding token; None if there is none.
        side: Source or target, for messages.

    Raises:
        IndexError: If an id is not in the vocabulary.
        ValueError: If a sentence has no ids, or holds padding, which attention would overlook.
    """
    for number, ids in enumerate(sentences):
        if not ids:
            raise ValueError(f"sentence {number} has no {side} ids, not even the end token")
        if not 0 <= min(ids) <= max(ids) < vocab_size:
            raise IndexError(f"sentence {number} has a {side} id that is not in the vocabulary of {vocab_size}")
        if pad_id in ids:
            raise ValueError(f"sentence {number} has {side} ids that are padding ({pad_id}); leave them out")


def candidates_of_row(beam_size: int) -> int:
    """Return how many next tokens of a hypothesis can matter: its end and K others; to greedy search, the best."""
    return 1 if beam_size == 1 else beam_size + 1


def candidates_of_sentence(beam_size: int) -> int:
    """Return how many continuations of a sentence can matter: at most K of the best 2 K end, so K go on."""
    return 1 if beam_size == 1 else 2 * beam_size


def rank_penalty(length: int, config: DecodeConfig) -> float:
    """Return what a log-probability is divided by to be ranked; greedy search compares nothing."""
    return length_penalty(length, config.length_penalty, config.length_penalty_form) if config.beam_size > 1 else 1.0


def score_to_beat(finished: Sequence[Hypothesis], num_best: int) -> float:
    """Return the rank score that a hypothesis must beat to be among the best; minus infinity while there is room."""
    if len(finished) < num_best:
        return float("-inf")
    return sorted(hypothesis.rank_score for hypothesis in finished)[-num_best]


def can_win(log_prob: float, longest_penalty: float, to_beat: float) -> bool:
    """Tell whether an open hypothesis may still be among the best.

    Log-probabilities only fall, so the best it can reach is its present one over the penalty of the longest output.
    """
    return log_prob / longest_penalty > to_beat
