"""Mistakes in study notes about widths, heads and the feed-forward network (sections 3.2.2 and 3.3).

Shapes: T length, D d_model, F d_ff.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.choices import Activation
from clearhead.config.presets import bert_base, bert_large, paper_base
from clearhead.model.feed_forward import FeedForward
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import build, encoder_layer, on_meta, paper_base_on_meta, standard_normal

_ROW_A = {1: 512, 4: 128, 8: 64, 16: 32, 32: 16}
"""Number of heads -> width of a head, as printed in Table 3, rows A and base."""
_BASE_PARAMETERS = 65e6
"""Number of weights in Table 3, row base."""
_EXACT = 1e-5
"""Maximum difference between values that should be equal."""


def _fits_row_a(width: Callable[[ModelConfig], int]) -> CheckResult:
    """For h = 1 to 32 the head widths are those of Table 3.

    The base model with heads of the claimed width has within 5 % of the printed 65 million weights.
    """
    widths = {heads: width(ModelConfig(num_heads=heads)) for heads in _ROW_A}
    base_width = width(paper_base())
    model = on_meta(lambda: Transformer(ModelConfig(d_k=base_width, d_v=base_width)))
    millions = model.num_parameters() / 1e6
    return CheckResult(
        widths == _ROW_A and abs(millions - _BASE_PARAMETERS / 1e6) < 0.05 * _BASE_PARAMETERS / 1e6,
        f"h = {', '.join(map(str, widths))} gives widths {', '.join(map(str, widths.values()))}; base would have "
        f"{millions:.1f} million weights (printed: 65)",
    )


def _heads_are_64_wide(num_heads: Callable[[], int]) -> CheckResult:
    """The base model with this number of heads has heads of width 64, as section 3.2.2 prints."""
    heads = num_heads()
    model = on_meta(lambda: Transformer(ModelConfig(num_heads=heads)))
    attention = encoder_layer(model, 0).self_attn
    width = attention.q_proj.out_features // attention.num_heads
    return CheckResult(
        width == 64, f"{heads} heads are {width} wide each; {model.num_parameters():,} weights with any number of heads"
    )


def _projects_into_a_head(shape: Callable[[], tuple[int, ...]]) -> CheckResult:
    """Three words of width 512 times a matrix of this shape give three queries of width 64."""
    words = torch.ones(3, 512)
    matrix = torch.ones(shape())
    fits = words.size(1) == matrix.size(0)
    result = f"({', '.join(map(str, (words @ matrix).shape))})" if fits else "no product"
    return CheckResult(
        fits and (words @ matrix).shape == (3, 64), f"(3, 512) times {tuple(matrix.shape)} gives {result}"
    )


def _block_of_the_first_head() -> tuple[int, ...]:
    attention = encoder_layer(paper_base_on_meta(), 0).self_attn
    rows = attention.q_proj.out_features // attention.num_heads
    return tuple(attention.q_proj.weight[:rows].T.shape)  # nn.Linear stores the transpose of the paper's matrix


def _computes_equation_2(matrices: Callable[[FeedForward], tuple[Tensor, Tensor]]) -> CheckResult:
    """Rows x can be multiplied as in equation 2, and the result is the output of the network."""
    network = build(lambda: FeedForward(d_model=8, d_ff=32))
    x = standard_normal(3, 8, seed=60)
    w1, w2 = matrices(network)
    shapes = f"W1 {tuple(w1.shape)}, W2 {tuple(w2.shape)}"
    if x.size(1) != w1.size(0) or w1.size(1) != w2.size(0):
        return CheckResult(False, f"x {tuple(x.shape)} cannot be multiplied with {shapes}")
    by_hand = (x @ w1 + network.up_proj.bias).clamp_min(0) @ w2 + network.down_proj.bias
    distance = (network(x[None])[0] - by_hand).abs().max().item()
    return CheckResult(distance < _EXACT, f"{shapes}: the network and equation 2 differ by {distance:.3f}")


def _says_the_width_of_bert(width: Callable[[ModelConfig], int]) -> CheckResult:
    """BERT base and large, which share a vocabulary, have the width of 12 and of 16 heads of 64."""
    base, large = bert_base(), bert_large()
    return CheckResult(
        base.vocab_size == large.vocab_size and (width(base), width(large)) == (12 * 64, 16 * 64),
        f"{base.vocab_size:,} and {large.vocab_size:,} pieces give {width(base)} and {width(large)} "
        f"(12 and 16 heads of 64: {12 * 64} and {16 * 64})",
    )


def _treats_positions_alike(network: Callable[[Tensor], Tensor]) -> CheckResult:
    """Shuffling six positions only shuffles their outputs."""
    x, order = standard_normal(6, 8, seed=61), torch.tensor([4, 2, 5, 0, 3, 1])
    distance = (network(x[order]) - network(x)[order]).abs().max().item()
    return CheckResult(distance < _EXACT, f"outputs of shuffled positions differ by {distance:.2f}")


def _one_network_over_the_sentence(x: Tensor) -> Tensor:
    network = build(lambda: FeedForward(d_model=48, d_ff=64))
    return network(x.reshape(1, 1, 48)).reshape(6, 8)


def _our_network(x: Tensor) -> Tensor:
    return build(lambda: FeedForward(d_model=8, d_ff=32))(x[None])[0]


def _is_gelu(activation: Callable[[], Activation]) -> CheckResult:
    """The activation is x Phi(x), calculated with the error function at five points.

    It is measured in a network whose matrices are 1 and biases 0.
    """
    network = build(lambda: FeedForward(d_model=1, d_ff=1, activation=activation()))
    for name, weight in network.named_parameters():
        weight.fill_(float("weight" in name))
    points = (-2.0, -1.0, -0.5, 0.5, 1.0)
    outputs = network(torch.tensor(points)[None, :, None])[0, :, 0].tolist()
    gelu = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in points]
    distance = max(abs(output - wanted) for output, wanted in zip(outputs, gelu, strict=True))
    return CheckResult(
        distance < _EXACT,
        f"the activation of -1 is {outputs[1]:.3f} (GELU: {gelu[1]:.3f}), largest difference {distance:.3f}",
    )


SHAPES_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=25,
        title="d_model is the size of one head",
        wrong="d_model is the dimension of a single attention head.",
        right="d_model is the width of the model. The width of a head is d_k = d_v = d_model / h: 512 / 8 = 64.",
        source="Section 3.2.2; Table 3, row A",
        wrong_version=lambda config: config.d_model,
        right_version=lambda config: config.key_dim,
        test=_fits_row_a,
    ),
    Erratum(
        number=26,
        title="Four heads",
        wrong="The results of all 4 heads are concatenated.",
        right="The base model has 8 heads, the big model 16. Four heads of width 128 are a variation in row A of Table "
        "3. The number of weights cannot distinguish them, because it is the same.",
        source="Section 3.2.2: h = 8, d_k = d_v = d_model / h = 64; Table 3",
        wrong_version=lambda: 4,
        right_version=lambda: paper_base().num_heads,
        test=_heads_are_64_wide,
    ),
    Erratum(
        number=27,
        title="The weight matrix has dimension 64",
        wrong="The dimensionality of the weight matrix is 64.",
        right="W_i^Q, W_i^K and W_i^V are 512 x 64 each; 64 is the width of their output.",
        source="Section 3.2.2: W_i^Q in R^(d_model x d_k)",
        wrong_version=lambda: (64, 64),
        right_version=_block_of_the_first_head,
        test=_projects_into_a_head,
    ),
    Erratum(
        number=28,
        title="W1 and W2 exchanged",
        wrong="W1 in R^(4d x d) and W2 in R^(d x 4d), with x in R^(1 x d); elsewhere sigma(W1^T X + b1)^T W2.",
        right="With rows x, as in the paper: W1 in R^(d x 4d), W2 in R^(4d x d), and max(0, x W1 + b1) W2 + b2. "
        "`nn.Linear` stores the transposes, which have the exchanged shapes; the two conventions must not be mixed.",
        source="Equation 2, section 3.3",
        wrong_version=lambda network: (network.up_proj.weight, network.down_proj.weight),
        right_version=lambda network: (network.up_proj.weight.T, network.down_proj.weight.T),
        test=_computes_equation_2,
    ),
    Erratum(
        number=29,
        title="768 comes from the word pieces",
        wrong="d_model = 768 is the result of employing word-piece embeddings over the vocabulary.",
        right="It is a chosen width, 12 heads of 64, and does not depend on the vocabulary: BERT large has the same "
        "word pieces and a width of 1024.",
        source="Devlin et al. 2019, section 3: BERT base L = 12, H = 768, A = 12; large L = 24, H = 1024, A = 16",
        wrong_version=lambda config: {bert_base().vocab_size: 768}[config.vocab_size],
        right_version=lambda config: config.d_model,
        test=_says_the_width_of_bert,
    ),
    Erratum(
        number=30,
        title="The feed-forward network is a standard ANN",
        wrong="The output of attention goes through a standard artificial neural network.",
        right="The same small network is applied to each position separately; only attention exchanges information "
        "between positions.",
        source="Section 3.3: applied to each position separately and identically",
        wrong_version=_one_network_over_the_sentence,
        right_version=_our_network,
        test=_treats_positions_alike,
    ),
    Erratum(
        number=31,
        title="BERT's feed-forward network uses ReLU",
        wrong="BERT's feed-forward network has a simple ReLU.",
        right="BERT uses GELU: x Phi(x), where Phi is the distribution function of the standard normal distribution. "
        "ReLU is used in the Transformer paper.",
        source="Devlin et al. 2019, appendix A.2; Hendrycks and Gimpel 2016",
        wrong_version=lambda: paper_base().activation,
        right_version=lambda: bert_base().activation,
        test=_is_gelu,
    ),
)
