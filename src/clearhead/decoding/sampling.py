"""Plain greedy search and sampling, token by token.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.config import Sampling
from clearhead.decoding.batched_sampling import draw_token
from clearhead.decoding.neighbours import Neighbours
from clearhead.decoding.rules import NO_NUMBERS, Hypothesis
from clearhead.decoding.sentence import Prefix, Sentence, sentences_of
from clearhead.decoding.step import DecodingBatch, next_log_probs
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.errors import ModelError
from clearhead.model.transformer import Transformer

Pick = Callable[[Float[Tensor, "R V"], list[int]], Int[Tensor, " R"]]
"""A function that returns each row's next token, given the log-probabilities and the source index of each row."""


def greedy_search(
    model: Transformer,
    sources: list[list[int]],
    *,
    max_lengths: list[int],
    prefixes: Sequence[Prefix] = (),
    neighbours: Sequence[Neighbours | None] = (),
    allowed: AllowedTokens | None = None,
) -> list[Hypothesis]:
    """Return the translations by greedy search: the most probable token at every step.

    `translate` runs its fast twin, `beam_state.SearchedSentence` with an engine; with `plain=True` and `--plain`, this
    one. tests/unit/decoding/test_beam_state.py and test_native_search.py hold them equal.

    Args:
        model: A model in evaluation mode.
        sources: Source ids of each sentence, ended by `eos_id`.
        max_lengths: Maximum target tokens of each sentence, end token included.
        prefixes: Forced target prefix of each sentence; empty if there are none.
        neighbours: Retrieved pairs of each sentence, with keys; empty if there are none.
        allowed: The allowed tokens of the model; None for those of the default settings, without parts of characters.
    """
    batch = DecodingBatch.encode(model, sources)
    sentences = sentences_of(sources, max_lengths, prefixes, neighbours=neighbours)
    allowed = allowed or AllowedTokens(model.config)
    return token_by_token(model, batch, sentences, allowed, lambda log_probs, _: log_probs.argmax(dim=-1))


def draw_tokens(
    log_probs: Float[Tensor, "R V"], generators: Sequence[torch.Generator], sampling: Sampling
) -> Int[Tensor, " R"]:
    """Draw a token per row, with one uniform number from the row's own generator, so other rows have no influence."""
    chances = [torch.rand(1, generator=generator).item() for generator in generators]
    rows = zip(log_probs.numpy(force=True), chances, strict=True)
    return torch.tensor([draw_token(row, chance, sampling) for row, chance in rows], device=log_probs.device)


def token_by_token(
    model: Transformer, batch: DecodingBatch, sentences: list[Sentence], allowed: AllowedTokens, pick: Pick
) -> list[Hypothesis]:
    """Return a translation of each sentence, written token by token.

    Args:
        model: A model in evaluation mode.
        batch: The encoded sentences; it is changed.
        sentences: The sentences.
        allowed: The allowed tokens of the model.
        pick: Chooses the next tokens.

    Raises:
        ModelError: If the model's probabilities are not numbers.
    """
    tokens: list[list[int]] = [[] for _ in sentences]
    log_prob = [0.0 for _ in sentences]
    was_ended = [False for _ in sentences]
    rows = list(range(len(sentences)))  # the sentence of each open row
    newest = batch.newest

    while rows:
        masks = [allowed.after(tokens[row], sentences[row]) for row in rows]
        log_probs = next_log_probs(model, batch, newest, masks, [sentences[row].neighbours for row in rows])
        if not log_probs.amax(dim=-1).isfinite().all():
            raise ModelError(NO_NUMBERS)
        newest = pick(log_probs, rows)
        gained = log_probs.gather(1, newest[:, None])[:, 0].tolist()
        for row, token, gain, mask in zip(rows, newest.tolist(), gained, masks, strict=True):
            tokens[row].append(token)
            log_prob[row] += 0.0 if len(tokens[row]) <= sentences[row].prefix.given else gain
            was_ended[row] = mask is allowed.end
        stay = (newest != model.config.eos_id).nonzero()[:, 0]
        if len(stay) < len(rows):
            rows = [rows[index] for index in stay.tolist()]
            newest = newest[stay]
            batch.select(stay, stay)
    samples = zip(tokens, log_prob, was_ended, strict=True)
    return [Hypothesis(tuple(ids), total, total, ended) for ids, total, ended in samples]
