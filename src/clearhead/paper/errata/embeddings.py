"""Mistakes in study notes about embeddings and positions (sections 3.4 and 3.5).

Shapes: T length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.model.positions import sinusoidal_positions
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import encoder_layer, input_of, on_meta, paper_base_on_meta, small_model, word_ids
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

    The model has the width 512.
    """
    x = _first_input(make(), word_ids(5, 7, 4, 9, 3, 8))
    positions = sinusoidal_positions(6, x.size(1))
    ratio = _root_mean_square(x - positions) / _root_mean_square(positions)
    return CheckResult(ratio >= 1, f"words are {ratio:.2f} times as large as positions")


def _wide_model(*, embedding_scale: bool) -> Transformer:
    """Return a model as wide as the base model, with one layer."""
    sizes = {"d_model": 512, "d_ff": 32, "num_heads": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    return small_model(**sizes, embedding_scale=embedding_scale)


def _has_the_printed_size(make: Callable[[], Transformer]) -> CheckResult:
    """The base model with 37,000 rows has within 5 % of the printed 65 million weights."""
    millions = make().num_parameters() / 1e6
    return CheckResult(
        abs(millions - _MILLIONS) < 0.05 * _MILLIONS, f"base has {millions:.1f} million weights (printed: 65)"
    )


def _order_matters(make: Callable[[], Transformer]) -> CheckResult:
    """Reversing a sentence changes the states of its words, not only their order."""
    model = make()
    forwards, _ = model.encode(word_ids(5, 7, 4, 9, 3))
    backwards, _ = model.encode(word_ids(3, 9, 4, 7, 5))
    distance = (forwards - backwards.flip(1)).abs().max().item()
    return CheckResult(distance > 0.1, f"reversing the sentence changes the states of its words by {distance:.2f}")


def _positions_are_added(first_input: Callable[[Transformer, Tensor], Tensor]) -> CheckResult:
    """The first layer receives d_model numbers for each of four copies of one word.

    They differ from each other as the positional encodings of section 3.5 do.
    """
    model = small_model()
    x = first_input(model, word_ids(7, 7, 7, 7))
    width = model.config.d_model
    if x.size(1) != width:
        return CheckResult(False, f"the first layer receives {x.size(1)} numbers for each word instead of {width}")
    positions = torch.tensor([[position_encoding(position, i, width) for i in range(width)] for position in range(4)])
    distance = ((x - x[0]) - (positions - positions[0])).abs().max().item()
    return CheckResult(
        distance < 1e-5,
        f"the first layer receives {x.size(1)} numbers for each word, different from the sum by {distance:.3f}",
    )


def _concatenated(model: Transformer, ids: Tensor) -> Tensor:
    words = functional.embedding(ids[0], model.source_embedding.weight) * model.source_embedding.scale
    return torch.cat([words, sinusoidal_positions(*words.shape)], dim=-1)


EMBEDDINGS_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=32,
        title="Embeddings without their scale",
        wrong="The input is the sum of a word's embedding and its position, without a factor.",
        right="Embeddings are multiplied by sqrt(d_model), 22.6 in the base model. Their initial variance is 1 / "
        "d_model, which suits the output layer that shares them; without the factor they would be much smaller than "
        "the positional encodings.",
        source="Section 3.4, last sentence; the initial variance is tensor2tensor's",
        wrong_version=lambda: _wide_model(embedding_scale=False),
        right_version=lambda: _wide_model(embedding_scale=True),
        test=_words_are_heard,
    ),
    Erratum(
        number=33,
        title="Three separate embedding matrices",
        wrong="Source embedding, target embedding and the linear layer before the softmax each have a matrix of their "
        "own.",
        right="All three share one matrix.",
        source="Section 3.4; Table 3, row base",
        wrong_version=lambda: on_meta(lambda: Transformer(ModelConfig(tying="none"))),
        right_version=paper_base_on_meta,
        test=_has_the_printed_size,
    ),
    Erratum(
        number=34,
        title="No positional encodings",
        wrong="Self-attention sees the order of the words; it needs nothing but the embeddings.",
        right="Attention itself ignores the order: shuffled words give shuffled states. In the encoder only the "
        "positional encodings carry the order; in the decoder the causal mask gives some information about it as well.",
        source="Section 3.5, first sentences",
        wrong_version=lambda: small_model(positions="none"),
        right_version=small_model,
        test=_order_matters,
    ),
    Erratum(
        number=35,
        title="Positions concatenated to the embeddings",
        wrong="The positional encoding is concatenated to the embedding.",
        right="It has the same width d_model as the embedding and is added to it.",
        source="Section 3.5: the same dimension d_model, so that the two can be summed; figure 1",
        wrong_version=_concatenated,
        right_version=_first_input,
        test=_positions_are_added,
    ),
)
