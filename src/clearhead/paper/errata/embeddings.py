"""Mistakes in study notes about embeddings and positions (sections 3.4 and 3.5).

Shapes: T length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.config.choices import Tying
from clearhead.config.presets import paper_base
from clearhead.model.positions import sinusoidal_positions
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import compared, encoder_layer, input_of, small_model, standard_normal, word_ids
from clearhead.paper.plain import position_encoding

_MILLIONS = 65.0
"""Number of weights of the base model, in millions (Table 3)."""


def _first_input(model: Transformer, ids: Tensor) -> Tensor:
    """Return the input of the first encoder layer for one sentence, [T, D]."""
    return input_of(encoder_layer(model, 0), lambda: model.encode(ids))[0]


def _root_mean_square(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _words_are_heard(make: Callable[[], Transformer]) -> CheckResult:
    """In the first layer's input, words are at least as large as positions by root mean square.

    The model has the width 512. Its first layer receives sqrt(512) times the embeddings plus the positions of section
    3.5, calculated number by number.
    """
    model, ids = make(), word_ids(5, 7, 4, 9, 3, 8)
    x, positions = _first_input(model, ids), _positions(6, 512)
    ratio = _root_mean_square(x - positions) / _root_mean_square(positions)
    return compared(
        x,
        512**0.5 * model.source_embedding.weight[ids[0]] + positions,
        to="section 3.4",
        holds=ratio >= 1,
        figures=f"words are {ratio:.2f} times as large as positions",
    )


def _positions(length: int, width: int) -> Tensor:
    return torch.tensor([[position_encoding(position, i, width) for i in range(width)] for position in range(length)])


def _wide_model(factor: float | None = None, **settings: Any) -> Transformer:
    """Return a model as wide as the base model, with one layer, and embeddings multiplied by a factor."""
    sizes = {"d_model": 512, "d_ff": 32, "num_heads": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = small_model(**sizes, **settings)
    if factor is not None:
        model.source_embedding.scale = factor
    return model


def _has_the_printed_size(make: Callable[[int], Transformer]) -> CheckResult:
    """The base model with 37,000 rows has within 5 % of the printed 65 million weights.

    Each further token of the vocabulary has 512 weights.
    """
    with torch.device("meta"):
        weights, more = make(37_000).num_parameters(), make(38_000).num_parameters()
    millions, growth = weights / 1e6, (more - weights) / 1000
    return CheckResult(
        abs(millions - _MILLIONS) < 0.05 * _MILLIONS and growth == 512,
        f"base has {millions:.1f} million weights (printed: 65), {growth:,.0f} for each further token",
        (weights, more),
    )


def _base(tying: Tying, vocab_size: int) -> Transformer:
    return Transformer(ModelConfig(tying=tying, vocab_size=vocab_size))


def _order_matters(make: Callable[[], Transformer]) -> CheckResult:
    """Any exchange of two of five words changes the states of its words, not only their order."""
    model, ids, distances = make(), word_ids(5, 7, 4, 9, 3), []
    states = model.encode(ids)[0]
    for left, right in combinations(range(5), 2):
        order = list(range(5))
        order[left], order[right] = right, left
        distances.append((model.encode(ids[:, order])[0] - states[:, order]).abs().max().item())
    return CheckResult(
        min(distances) > 0.1,
        f"exchanging two words changes the states of the words by at least {min(distances):.2f}",
        states,
    )


def _marked(columns: Callable[[Tensor], Tensor]) -> Transformer:
    """Return a model whose encodings are functions of the position that repeat."""
    model = small_model(positions="learned")
    model.source_embedding.positions = _Marks(columns)
    return model


class _Marks(nn.Module):
    def __init__(self, columns: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, start: int, length: int) -> Tensor:
        """Return one vector for each position: a random one times a function of the position."""
        return self.columns(torch.arange(start, start + length))[:, None] * standard_normal(16, seed=60)


def _positions_are_added(first_input: Callable[[Transformer, Tensor], Tensor]) -> CheckResult:
    """The first layer receives d_model numbers for each of four words, the first two of which are the same.

    They are the scaled embeddings plus the encodings of section 3.5, calculated number by number.
    """
    model, ids = small_model(), word_ids(7, 7, 4, 9)
    x = first_input(model, ids)
    width = model.config.d_model
    return compared(
        x,
        width**0.5 * model.source_embedding.weight[ids[0]] + _positions(4, width),
        to="sections 3.4 and 3.5",
        figures=f"the first layer receives {x.size(1)} numbers for each word",
    )


def _positions_scaled_too(model: Transformer, ids: Tensor) -> Tensor:
    embedding = model.source_embedding
    return embedding.scale * (embedding.weight[ids[0]] + sinusoidal_positions(ids.size(1), 16))


def _concatenated(model: Transformer, ids: Tensor) -> Tensor:
    words = functional.embedding(ids[0], model.source_embedding.weight) * model.source_embedding.scale
    return torch.cat([words, sinusoidal_positions(*words.shape)], dim=-1)


EMBEDDINGS_ERRATA = (
    erratum(
        "Embeddings without their scale",
        wrong_version=partial(_wide_model, embedding_scale=False),
        right_version=_wide_model,
        test=_words_are_heard,
        mutants={
            "the factor 512": partial(_wide_model, 512),
            "the factor 16": partial(_wide_model, 16),
            "the factor sqrt(64)": partial(_wide_model, 8),
        },
    ),
    erratum(
        "Three separate embedding matrices",
        wrong_version=partial(_base, "none"),
        right_version=lambda vocab_size: Transformer(paper_base(vocab_size=vocab_size)),
        test=_has_the_printed_size,
        mutants={
            "three matrices of 13,000 rows": lambda vocab_size: _base("none", 13_000),
            "three matrices, each with a third of the rows": lambda vocab_size: _base("none", vocab_size // 3),
            "source and target alone share": partial(_base, "embeddings"),
        },
    ),
    erratum(
        "No positional encodings",
        wrong_version=lambda: small_model(positions="none"),
        right_version=small_model,
        test=_order_matters,
        mutants={
            "the same vector at every position": lambda: _marked(torch.ones_like),
            "only the first position is marked": lambda: _marked(lambda positions: (positions == 0).float()),
            "odd and even positions are marked": lambda: _marked(lambda positions: positions % 2),
        },
        also_right={
            "learned positions": lambda: small_model(positions="learned"),
            "relative positions": lambda: small_model(positions="relative"),
            "rotary positions": lambda: small_model(positions="rotary"),
        },
    ),
    erratum(
        "Positions concatenated to the embeddings",
        wrong_version=_concatenated,
        right_version=_first_input,
        test=_positions_are_added,
        mutants={
            "positions without the word": lambda model, ids: sinusoidal_positions(ids.size(1), 16),
            "words without positions": lambda model, ids: model.source_embedding.vectors(ids)[0],
            "positions multiplied like the embedding": _positions_scaled_too,
            "positions counted from 1": lambda model, ids: model.source_embedding(ids, start=1)[0],
        },
    ),
)
