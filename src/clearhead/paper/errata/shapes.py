"""Mistakes in study notes about widths, heads and the feed-forward network (sections 3.2.2 and 3.3).

Shapes: T length, D d_model, F d_ff.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.config.presets import bert_base, bert_large, paper_base
from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.encoder import EncoderLayer
from clearhead.model.feed_forward import FeedForward
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import (
    EXACT,
    build,
    compared,
    difference,
    head_matrices,
    on_meta,
    standard_normal,
)
from clearhead.paper.plain import attention, feed_forward, matmul

_ROW_A = {1: 512, 4: 128, 8: 64, 16: 32, 32: 16}
"""Number of heads -> width of a head, as printed in Table 3, rows A and base."""


def _is_the_rank_of_the_scores(width: Callable[[ModelConfig], int]) -> CheckResult:
    """The head width is the rank of a head's scores: it bounds the rank of W_i^Q W_i^K^T.

    It is measured over 40 random words at d_model = 32, for h = 1, 2, 4 and 8. For h = 1 to 32 the width is that of
    Table 3.
    """
    words, ranks, claimed = standard_normal(1, 40, 32, seed=62).double(), {}, {}
    for heads in (1, 2, 4, 8):
        config = ModelConfig(d_model=32, d_ff=48, num_heads=heads)
        sublayer = build(partial(MultiHeadAttention, d_model=32, num_heads=heads)).double()
        scores = sublayer.queries(words)[0, 0] @ sublayer.keys_and_values(words)[0][0, 0].T
        ranks[heads], claimed[heads] = int(torch.linalg.matrix_rank(scores)), width(config)
    printed = {heads: width(ModelConfig(num_heads=heads)) for heads in _ROW_A}
    return CheckResult(
        claimed == ranks and printed == _ROW_A,
        f"at d_model = 32, h = {_listed(ranks)} widths {_listed(claimed.values())} (ranks: {_listed(ranks.values())}); "
        f"at d_model = 512, h = {_listed(printed)} widths {_listed(printed.values())}",
        (claimed, printed),
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _output_of_a_head(config: ModelConfig) -> int:
    """Return the width of the first head's queries in the model's attention."""
    sublayer = on_meta(lambda: EncoderLayer(config)).self_attn
    return sublayer.queries(torch.empty(1, 1, config.d_model, device="meta")).size(-1)


def _heads_are_64_wide(num_heads: int) -> CheckResult:
    """The base model with this number of heads has heads of width 64, as section 3.2.2 prints."""
    width = paper_base().d_model / num_heads
    return CheckResult(width == 64, f"{num_heads} heads are {width:.0f} wide each", num_heads)


def _projects_into_a_head(matrix_of: Callable[[MultiHeadAttention], Tensor]) -> CheckResult:
    """With this matrix as W_1^Q, equation 1 gives the weights of the first head, calculated number by number.

    The model is 12 wide and has three heads of width 4.
    """
    sublayer, words = build(lambda: MultiHeadAttention(d_model=12, num_heads=3)), standard_normal(5, 12, seed=63)
    matrix, weights = matrix_of(sublayer), list[Tensor]()
    sublayer(words[None], weights=weights)
    shapes = f"(5, 12) times {tuple(matrix.shape)}"
    if matrix.shape != (12, 4):
        return CheckResult(False, f"{shapes} does not give queries of width 4", matrix)
    queries, keys = (matmul(words.tolist(), each) for each in (matrix.tolist(), head_matrices(sublayer)[1][0]))
    computed = torch.tensor(attention(queries, keys, keys)[1])
    return compared(computed, weights[0][0, 0], to="the first head's weights", figures=shapes)


def _of_the_first_head(sublayer: MultiHeadAttention) -> Tensor:
    return sublayer.q_proj.weight.chunk(sublayer.num_heads)[0].T  # nn.Linear stores the transpose of the paper's matrix


def _computes_equation_2(matrices: Callable[[FeedForward], tuple[Tensor, Tensor]]) -> CheckResult:
    """Rows x can be multiplied as in equation 2, number by number, and the result is the output of the network."""
    network = build(lambda: FeedForward(d_model=8, d_ff=32))
    x = standard_normal(3, 8, seed=60)
    w1, w2 = matrices(network)
    shapes = f"W1 {tuple(w1.shape)}, W2 {tuple(w2.shape)}"
    if x.size(1) != w1.size(0) or w1.size(1) != w2.size(0):
        return CheckResult(False, f"x {tuple(x.shape)} cannot be multiplied with {shapes}", (w1, w2))
    biases = network.up_proj.bias.tolist(), network.down_proj.bias.tolist()
    by_hand = feed_forward(x.tolist(), w1.tolist(), biases[0], w2.tolist(), biases[1])
    distance = difference(network(x[None])[0], by_hand)
    return CheckResult(distance < EXACT, f"{shapes}: the network and equation 2 differ by {distance:.3f}", (w1, w2))


def _reshaped(network: FeedForward) -> tuple[Tensor, Tensor]:
    return network.up_proj.weight.reshape(8, 32), network.down_proj.weight.reshape(32, 8)


def _says_the_width_of_bert(width: Callable[[ModelConfig], int]) -> CheckResult:
    """BERT base and large, which share a vocabulary, have the width of 12 and of 16 heads of 64."""
    base, large = bert_base(), bert_large()
    widths = width(base), width(large)
    return CheckResult(
        base.vocab_size == large.vocab_size and widths == (12 * 64, 16 * 64),
        f"{base.vocab_size:,} and {large.vocab_size:,} pieces give {widths[0]} and {widths[1]} "
        f"(12 and 16 heads of 64: {12 * 64} and {16 * 64})",
        widths,
    )


def _treats_positions_alike(apply: Callable[[FeedForward, Tensor], Tensor]) -> CheckResult:
    """Shuffling six positions only shuffles their outputs.

    Each output is equation 2 of its own position, calculated number by number.
    """
    network = build(lambda: FeedForward(d_model=8, d_ff=32))
    x, order = standard_normal(6, 8, seed=61), torch.tensor([4, 2, 5, 0, 3, 1])
    output = apply(network, x)
    distance = (apply(network, x[order]) - output[order]).abs().max().item()
    w1, w2 = network.up_proj, network.down_proj
    return compared(
        output,
        feed_forward(x.tolist(), w1.weight.T.tolist(), w1.bias.tolist(), w2.weight.T.tolist(), w2.bias.tolist()),
        to="equation 2",
        holds=distance < EXACT,
        figures=f"outputs of shuffled positions differ by {distance:.2f}",
    )


def _one_network_over_the_sentence(network: FeedForward, x: Tensor) -> Tensor:
    return build(lambda: FeedForward(d_model=48, d_ff=64))(x.reshape(1, 1, 48)).reshape(6, 8)


def _our_network(network: FeedForward, x: Tensor) -> Tensor:
    return network(x[None])[0]


def _two_convolutions(network: FeedForward, x: Tensor) -> Tensor:
    """Return the output of two convolutions of kernel size 1 with the network's weights."""
    hidden = functional.conv1d(x.T, network.up_proj.weight[..., None], network.up_proj.bias).relu()
    return functional.conv1d(hidden, network.down_proj.weight[..., None], network.down_proj.bias).T


def _is_gelu(activation: Callable[[Tensor], Tensor]) -> CheckResult:
    """The activation is x Phi(x), calculated with the error function at five points, with an error below 0.001."""
    points = (-2.0, -1.0, -0.5, 0.5, 1.0)
    outputs = activation(torch.tensor(points))
    gelu = torch.tensor([x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in points])
    distance = difference(outputs, gelu)
    return CheckResult(
        distance < 1e-3,
        f"the activation of -1 is {outputs[1]:.3f} (GELU: {gelu[1]:.3f}), largest difference {distance:.3f}",
        outputs,
    )


def _activation_of(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Return what a feed-forward network with this model's activation computes if its matrices are 1 and biases 0."""

    def apply(points: Tensor) -> Tensor:
        network = build(lambda: FeedForward(d_model=1, d_ff=1, activation=config.activation))
        for name, weight in network.named_parameters():
            weight.fill_(float("weight" in name))
        return network(points[None, :, None])[0, :, 0]

    return apply


SHAPES_ERRATA = (
    erratum(
        "d_model is the size of one head",
        wrong_version=lambda config: config.d_model,
        right_version=_output_of_a_head,
        test=_is_the_rank_of_the_scores,
        mutants={
            "64 in every model": lambda config: 64,
            "d_model / N": lambda config: config.d_model // config.num_encoder_layers,
            "d_ff / 4 h": lambda config: config.d_ff // (4 * config.num_heads),
        },
        also_right={"d_model / h": lambda config: config.d_model // config.num_heads},
    ),
    erratum(
        "Four heads",
        wrong_version=4,
        right_version=paper_base().num_heads,
        test=_heads_are_64_wide,
        mutants={"as many as layers": 6, "as in the big model": 16},
    ),
    erratum(
        "The weight matrix has dimension 64",
        wrong_version=lambda sublayer: sublayer.q_proj.weight[:4, :4],
        right_version=_of_the_first_head,
        test=_projects_into_a_head,
        mutants={
            "columns in place of rows": lambda sublayer: sublayer.q_proj.weight[:, :4],
            "the second head's": lambda sublayer: sublayer.q_proj.weight[4:8].T,
            "the first head's W^K": lambda sublayer: sublayer.k_proj.weight[:4].T,
            "all heads' at once": lambda sublayer: sublayer.q_proj.weight.T,
        },
    ),
    erratum(
        "W1 and W2 exchanged",
        wrong_version=lambda network: (network.up_proj.weight, network.down_proj.weight),
        right_version=lambda network: (network.up_proj.weight.T, network.down_proj.weight.T),
        test=_computes_equation_2,
        mutants={
            "reshaped, not transposed": _reshaped,
            "W1 transposed, W2 reshaped": lambda network: (network.up_proj.weight.T, _reshaped(network)[1]),
            "W2 transposed is W1": lambda network: (network.down_proj.weight, network.down_proj.weight.T),
        },
    ),
    erratum(
        "768 comes from the word pieces",
        wrong_version=lambda config: {bert_base().vocab_size: 768}[config.vocab_size],
        right_version=lambda config: config.d_model,
        test=_says_the_width_of_bert,
    ),
    erratum(
        "The feed-forward network is a standard ANN",
        wrong_version=_one_network_over_the_sentence,
        right_version=_our_network,
        test=_treats_positions_alike,
        mutants={
            "the input": lambda network, x: x,
            "the mean of the positions": lambda network, x: _our_network(network, x).mean(dim=0).expand_as(x),
            "self-attention": lambda network, x: scaled_dot_product_attention(x, x, x)[0],
            "no activation": lambda network, x: network.down_proj(network.up_proj(x)),
        },
        also_right={
            "two convolutions of kernel size 1": _two_convolutions,
            "word by word": lambda network, x: torch.cat([_our_network(network, word) for word in x.split(1)]),
        },
    ),
    erratum(
        "BERT's feed-forward network uses ReLU",
        wrong_version=_activation_of(paper_base()),
        right_version=_activation_of(bert_base()),
        test=_is_gelu,
        mutants={"SiLU, x times the sigmoid of x": functional.silu, "Phi(x) without x": torch.special.ndtr},
        also_right={"the approximation by tanh": partial(functional.gelu, approximate="tanh")},
    ),
)
