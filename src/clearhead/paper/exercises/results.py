"""Exercises on translation, its score, the size of the model, and parsing (section 6).

Shapes: K beams, V vocabulary.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.materials import on_meta, standard_normal, word_ids
from clearhead.paper.exercises.exercise import Answer, equals, exercise_of


def greedy(next_logits: Callable[[list[int]], Tensor], bos_id: int, eos_id: int, max_length: int) -> list[int]:
    """Return the tokens that greedy search writes, the end token `eos_id` included.

    `next_logits` takes what the decoder reads, ids that begin with `bos_id`, and returns the logits [V] of the next
    token. Fill in the logits of each step.
    """
    tokens: list[int] = []
    while eos_id not in tokens and len(tokens) < max_length:
        logits = next_logits([bos_id, *tokens])
        tokens.append(int(logits.argmax()))
    return tokens


def beam_step(scores: Tensor, log_probs: Tensor) -> list[tuple[int, int]]:
    """Return the best K continuations of K hypotheses as (hypothesis, token), best first.

    A hypothesis has the score [K] so far, the sum of its log-probabilities, and log_probs [K, V] for its next token.
    Fill in the scores [K, V] of all continuations.
    """
    totals = scores[:, None] + log_probs
    ways: list[int] = totals.flatten().topk(len(scores)).indices.tolist()
    return [(way // log_probs.size(1), way % log_probs.size(1)) for way in ways]


def length_penalty(length: int, alpha: float) -> float:
    """Return what the log-probability of a hypothesis is divided by (Wu et al. 2016, which section 6.1 cites).

    `length` counts tokens; `alpha` is 0.6 in the paper.
    """
    return ((5 + length) / (5 + 1)) ** alpha


def matches(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """Return how many words of a translation BLEU counts as right: each word of the reference counts once.

    Fill in how often a word counts that the translation has `count` times.
    """
    in_reference = Counter(reference)
    return sum(min(count, in_reference[word]) for word, count in Counter(hypothesis).items())


def brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    """Return BLEU's factor for translations of `hypothesis_length` words in all; references have `reference_length`.

    Translations that are long enough have the factor 1.
    """
    return min(1.0, math.exp(1 - reference_length / hypothesis_length))


def num_parameters(vocab_size: int, d_model: int, d_ff: int, num_layers: int) -> int:
    """Return the number of weights of a Transformer of the paper, with `num_layers` layers in each stack.

    Fill in the weights of a decoder layer.
    """
    attention, feed_forward, norm = 4 * d_model**2, 2 * d_model * d_ff + d_ff + d_model, 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return vocab_size * d_model + num_layers * (encoder_layer + decoder_layer)


def f1(precision: float, recall: float) -> float:
    """Return the F1 score by which section 6.3 measures parse trees, from precision and recall, between 0 and 1.

    It is their harmonic mean.
    """
    return 2 * precision * recall / (precision + recall)


def _greedy_of(answer: Answer) -> Callable[[Transformer, list[int]], list[int]]:
    """Return a greedy search for a model; padding and the start token are never written."""

    def decode(model: Transformer, source: list[int]) -> list[int]:
        def next_logits(prefix: list[int]) -> Tensor:
            logits: Tensor = model(word_ids(*source), word_ids(*prefix))[0, -1].clone()
            logits[:2] = -math.inf
            return logits

        tokens: list[int] = answer(next_logits, 1, model.config.eos_id, 12)
        return tokens

    return decode


def _best_continuations(scores: Tensor, log_probs: Tensor) -> list[tuple[int, int]]:
    ways = [
        (score + log_prob, (row, token))
        for row, score in enumerate(scores.tolist())
        for token, log_prob in enumerate(log_probs[row].tolist())
    ]
    return [way for _, way in sorted(ways, reverse=True)[: len(scores)]]


def _matches_one_by_one(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    left = list(reference)
    for word in hypothesis:
        if word in left:
            left.remove(word)
    return len(reference) - len(left)


def _brevity(hypothesis_length: int, reference_length: int) -> float:
    if hypothesis_length >= reference_length:
        return 1.0
    return math.e ** (1 - reference_length / hypothesis_length)


def _counted(vocab_size: int, d_model: int, d_ff: int, num_layers: int) -> int:
    layers = {"num_encoder_layers": num_layers, "num_decoder_layers": num_layers}
    config = ModelConfig.model_validate({"vocab_size": vocab_size, "d_model": d_model, "d_ff": d_ff, **layers})
    return on_meta(lambda: Transformer(config)).num_parameters()


_LOG_PROBS = (2 * standard_normal(3, 5, seed=260)).log_softmax(dim=-1)


RESULTS_EXERCISES = (
    exercise_of(greedy, errata={39: _greedy_of}),
    exercise_of(
        beam_step,
        test=equals(
            _best_continuations,
            (torch.tensor([-0.5, -1.0, -4.0]), _LOG_PROBS),
            (torch.tensor([-0.1, -1.0, -1.1]), _LOG_PROBS),
        ),
    ),
    exercise_of(
        length_penalty,
        test=equals(
            lambda length, alpha: math.exp(alpha * (math.log(5 + length) - math.log(6))),
            *((length, alpha) for length in (1, 7, 40) for alpha in (0.0, 0.6, 1.0)),
        ),
    ),
    exercise_of(
        matches,
        test=equals(
            _matches_one_by_one,
            (["the", "the", "the", "cat"], ["the", "cat", "sat", "on", "the", "mat"]),
            (["a", "dog"], ["a", "a", "dog"]),
            (["no", "word", "fits"], ["another", "text"]),
        ),
    ),
    exercise_of(brevity_penalty, test=equals(_brevity, (8, 10), (10, 10), (15, 10), (1, 3))),
    exercise_of(
        num_parameters, test=equals(_counted, (37_000, 512, 2_048, 6), (100, 64, 128, 1), (1_000, 256, 1_024, 2))
    ),
    exercise_of(
        f1,
        test=equals(
            lambda precision, recall: statistics.harmonic_mean([precision, recall]),
            (0.9, 0.5),
            (0.913, 0.927),
            (1.0, 0.01),
        ),
    ),
)
