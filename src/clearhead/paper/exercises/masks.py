"""Exercises on cross-attention and masks (section 3.2.3).

Shapes: B batch, T target length, S source length, D d_model, K head width. A mask is True where a position may be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.model.attention import MultiHeadAttention
from clearhead.paper import plain
from clearhead.paper.errata.masks import Run, masked_by
from clearhead.paper.errata.materials import head_matrices, standard_normal
from clearhead.paper.exercises.exercise import Answer, equals, exercise_of


def cross_attention(states: Tensor, memory: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    """Return a head of cross-attention [T, K], for decoder states [T, D] and the encoder's output, memory [S, D].

    Fill in queries, keys and values; the matrices w_q, w_k and w_v are [D, K].
    """
    q, k, v = states @ w_q, memory @ w_k, memory @ w_v
    return (q @ k.T / q.size(-1) ** 0.5).softmax(dim=-1) @ v


def hide(scores: Tensor, mask: Tensor) -> Tensor:
    """Return scores [T, S] such that the softmax gives hidden keys the weight 0.

    The mask is [T, S] or [S], True where a key may be seen.
    """
    return scores.masked_fill(~mask, -math.inf)


def causal_mask(length: int) -> Tensor:
    """Return the mask [T, T] of the decoder's self-attention: True where the position of a row may see a column's.

    Targets are shifted right: a position reads the token before the one that it predicts.
    """
    everything = torch.ones(length, length, dtype=torch.bool)
    return everything.tril()


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Return the mask [B, 1, 1, S] of sentences of token ids [B, S], of which shorter ones end in `pad_id`.

    It applies to scores [B, H, T, S]: all heads and queries see all tokens but padding.
    """
    return (ids != pad_id)[:, None, None, :]


def decoder_mask(is_causal: Tensor, is_token: Tensor) -> Tensor:
    """Return the mask [B, 1, T, T] of the decoder's self-attention for sentences with padding.

    `is_causal` [T, T] is True for earlier positions and itself, `is_token` [B, 1, 1, T] for all tokens but padding.
    """
    return is_causal & is_token


def _cross(states: Tensor, memory: Tensor, *matrices: Tensor) -> plain.Matrix:
    w_q, w_k, w_v = (matrix.tolist() for matrix in matrices)
    keys, values = plain.matmul(memory.tolist(), w_k), plain.matmul(memory.tolist(), w_v)
    return plain.attention(plain.matmul(states.tolist(), w_q), keys, values)[0]


def _multi_head(answer: Answer) -> Callable[[MultiHeadAttention, Tensor, Tensor], Tensor]:
    """Return multi-head attention, each head of which is an answer."""

    def attend(attention: MultiHeadAttention, states: Tensor, memory: Tensor) -> Tensor:
        matrices = [map(torch.tensor, of_a_head) for of_a_head in zip(*head_matrices(attention), strict=True)]
        heads = [answer(states[0], memory[0], *of_a_head) for of_a_head in matrices]
        output: Tensor = attention.out_proj(torch.cat(heads, dim=-1))[None]
        return output

    return attend


def _with_scores_of(answer: Answer) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return self-attention of words [T, D] in which an answer hides keys."""

    def attend(x: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
        weights = answer(x @ x.T / x.size(-1) ** 0.5, shown).softmax(dim=-1)
        return weights @ x, weights

    return attend


def _layer_with(answer: Answer) -> Run:
    """Return a decoder layer with the mask of an answer."""
    return lambda layer, x, is_token: masked_by(layer, x, answer(x.size(1)))


def _in_both(is_causal: Tensor, is_token: Tensor) -> list[list[list[list[bool]]]]:
    return [
        [[[may and token for may, token in zip(row, sentence, strict=True)] for row in is_causal.tolist()]]
        for sentence in is_token[:, 0, 0].tolist()
    ]


_IDS = torch.tensor([[5, 7, 2, 0, 0], [4, 9, 9, 6, 2], [8, 2, 0, 0, 0]])
_STATES, _MEMORY = standard_normal(5, 6, seed=230), standard_normal(7, 6, seed=231)
_MATRICES = tuple(standard_normal(6, 4, seed=seed) for seed in (232, 233, 234))


MASKS_EXERCISES = (
    exercise_of(cross_attention, test=equals(_cross, (_STATES, _MEMORY, *_MATRICES)), errata={22: _multi_head}),
    exercise_of(hide, errata={19: _with_scores_of}),
    exercise_of(
        causal_mask,
        test=equals(lambda length: [[s <= t for s in range(length)] for t in range(length)], (1,), (4,)),
        errata={20: _layer_with, 21: _layer_with},
    ),
    exercise_of(
        padding_mask,
        test=equals(
            lambda ids, pad_id: [[[[id != pad_id for id in row]]] for row in ids.tolist()], (_IDS, 0), (_IDS, 9)
        ),
    ),
    exercise_of(decoder_mask, test=equals(_in_both, (torch.ones(5, 5).tril().bool(), (_IDS != 0)[:, None, None, :]))),
)
