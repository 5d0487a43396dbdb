"""Mistakes in study notes about the projections of multi-head attention (section 3.2.2).

Shapes: T length, D d_model, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.transformer import Transformer
from clearhead.paper.counts import counted_flops
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import (
    build,
    count_weights,
    encoder_layer,
    input_of,
    on_meta,
    paper_base_on_meta,
    small_model,
    standard_normal,
    word_ids,
)

_MULTI_HEAD = "Section 3.2.2"
_D_MODEL, _HEADS, _D_K = 512, 8, 64
_ROW_A = (1, 4, 8, 16, 32)
"""Numbers of heads in row A of Table 3, plus the base model's 8."""


class _WithoutWeights(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x, x)[0]


def _has_the_papers_weights(make: Callable[[], list[nn.Module]]) -> CheckResult:
    """The base model has 18 attention sub-layers, each with as many weights as the printed matrices.

    Section 3.2.2 prints 3 h matrices of d_model x d_k and one of h d_v x d_model.
    """
    printed = _HEADS * 3 * (_D_MODEL * _D_K) + (_HEADS * _D_K) * _D_MODEL
    counts = [count_weights(attention) for attention in make()]
    return CheckResult(
        len(counts) == 18 and all(count == printed for count in counts),
        f"{counts[0]:,} weights in a sub-layer, {sum(counts):,} in {len(counts)} (printed shapes: {printed:,} each)",
    )


def _attention_of_base() -> list[nn.Module]:
    return [module for module in paper_base_on_meta().modules() if isinstance(module, MultiHeadAttention)]


def _can_look_at_the_next(weigh: Callable[[Tensor], Tensor]) -> CheckResult:
    """Each of eight different words can give its largest weight to the next word.

    In the right version, W^Q and W^K are set by hand to achieve this.
    """
    looks_at = weigh(torch.eye(8)).argmax(dim=-1)
    hits = int((looks_at == torch.arange(1, 9) % 8).sum())
    own = int((looks_at == torch.arange(8)).sum())
    return CheckResult(hits == 8, f"{hits} of 8 words give the next one the largest weight, {own} themselves")


def _made_to_look_at_the_next(x: Tensor) -> Tensor:
    """Return weights of the package's attention, with W^Q set so that each word's query matches the next word."""
    attention = build(lambda: MultiHeadAttention(d_model=8, num_heads=1))
    weights: list[Tensor] = []
    attention.q_proj.weight.copy_(20 * torch.eye(8).roll(1, dims=1).T)
    attention.k_proj.weight.copy_(torch.eye(8))
    attention(x[None], x[None], weights=weights)
    return weights[0][0, 0]


def _depend_on_the_context(values_of: Callable[[Transformer, Tensor], Tensor]) -> CheckResult:
    """Replacing a sentence's last word changes the second layer's value of its first word."""
    model = small_model()
    moved = (values_of(model, word_ids(5, 7, 4, 9)) - values_of(model, word_ids(5, 7, 4, 3)))[0].abs().max().item()
    return CheckResult(
        moved > 0.01, f"the value of the first word changes by {moved:.2f} when the last word is replaced"
    )


def _second_layer_values(model: Transformer, ids: Tensor) -> Tensor:
    attention = encoder_layer(model, 1).self_attn
    previous = input_of(attention.v_proj, lambda: model.encode(ids))
    return attention.keys_and_values(previous)[1][0].transpose(0, 1)  # (T, H, d_v)


def _word_vectors(model: Transformer, ids: Tensor) -> Tensor:
    return functional.embedding(ids, model.source_embedding.weight)[0]


def _heads_look_at_different_places(weigh: Callable[[Tensor], Tensor]) -> CheckResult:
    """Each of the other three heads differs from the first by more than 0.1 in some weight."""
    weights = weigh(standard_normal(6, 16, seed=30))  # (H, T, T)
    differences = [(head - weights[0]).abs().max().item() for head in weights[1:]]
    return CheckResult(min(differences) > 0.1, f"other heads differ from the first by at least {min(differences):.2f}")


def _four_times_the_same(x: Tensor) -> Tensor:
    return scaled_dot_product_attention(x, x, x)[1].expand(4, -1, -1)


def _four_heads(x: Tensor) -> Tensor:
    attention = build(lambda: MultiHeadAttention(d_model=16, num_heads=4))
    weights: list[Tensor] = []
    attention(x[None], x[None], weights=weights)
    return weights[0][0]


def _heads_do_not_change_the_count(make: Callable[[int], nn.Module]) -> CheckResult:
    """A sub-layer has 4 d_model^2 weights for each number of heads in row A of Table 3 and for 8.

    Row A leaves the number of weights blank, which means that it is unchanged.
    """
    counts = [count_weights(on_meta(partial(make, heads))) for heads in _ROW_A]
    wanted = 4 * _D_MODEL**2
    return CheckResult(
        all(found == wanted for found in counts),
        f"at h = {', '.join(map(str, _ROW_A))}: {', '.join(f'{found:,}' for found in counts)} weights",
    )


def _heads_that_share(heads: int) -> MultiHeadAttention:
    return MultiHeadAttention(d_model=_D_MODEL, num_heads=heads)


def _eight_heads_cost_one(make: Callable[[int], MultiHeadAttention]) -> CheckResult:
    """Eight heads take less than 1.1 times the multiply-adds of one head of full width.

    The multiply-adds are counted, over 64 positions.
    """
    x = torch.zeros(1, 64, _D_MODEL, device="meta")
    one, eight = (on_meta(partial(make, heads)) for heads in (1, _HEADS))
    ratio = counted_flops(lambda: eight(x, x, weights=[])) / counted_flops(lambda: one(x, x, weights=[]))
    return CheckResult(ratio < 1.1, f"8 heads take {ratio:.2f} times the multiply-adds of one of full width")


def _reads_the_whole_word(queries: Callable[[MultiHeadAttention, Tensor], Tensor]) -> CheckResult:
    """Every number of the first head's queries depends on all 32 numbers of its word."""
    layer = build(lambda: MultiHeadAttention(d_model=32, num_heads=4))
    x = standard_normal(1, 5, 32, seed=33).requires_grad_()
    felt = [torch.autograd.grad(number, x, retain_graph=True)[0][0, 0] != 0 for number in queries(layer, x)[0]]
    fewest = int(torch.stack(felt).sum(dim=-1).min())
    return CheckResult(fewest == 32, f"a number of a query depends on {fewest} of 32 numbers of its word")


PROJECTIONS_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=13,
        title="Self-attention without parameters",
        wrong="Self-attention does not require any new learnable parameters.",
        right="Each attention sub-layer has the matrices W^Q, W^K, W^V and W^O: 4 d_model^2 = 1,048,576 weights in the "
        "base model, and 18.9 million in its 18 attention sub-layers.",
        source=_MULTI_HEAD + ", the shapes of the projections",
        wrong_version=lambda: [_WithoutWeights() for _ in range(18)],
        right_version=_attention_of_base,
        test=_has_the_papers_weights,
    ),
    Erratum(
        number=14,
        title="Q, K and V are the embeddings",
        wrong="Q = K = V = X.",
        right="The inputs are equal, but attention receives X W^Q, X W^K and X W^V. Without the projections the scores "
        "would be symmetric, and among words of equal length each would give itself the largest weight.",
        source=_MULTI_HEAD + ", head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)",
        wrong_version=lambda x: scaled_dot_product_attention(x, x, x)[1],
        right_version=_made_to_look_at_the_next,
        test=_can_look_at_the_next,
    ),
    Erratum(
        number=15,
        title="Values are the original word vectors",
        wrong="The values are the original word vectors.",
        right="They are learned projections of the previous layer's output, which already depends on the context.",
        source="Section 3.2.3: keys, values and queries come from the output of the previous layer",
        wrong_version=_word_vectors,
        right_version=_second_layer_values,
        test=_depend_on_the_context,
    ),
    Erratum(
        number=16,
        title="Multi-head attention repeats the same attention",
        wrong="Multi-head attention runs self-attention multiple times and combines the results.",
        right="Each head has its own projections and so computes different weights. The heads' outputs are "
        "concatenated and multiplied by W^O.",
        source=_MULTI_HEAD + ", MultiHead = Concat(head_1, ..., head_h) W^O",
        wrong_version=_four_times_the_same,
        right_version=_four_heads,
        test=_heads_look_at_different_places,
    ),
    Erratum(
        number=17,
        title="Only multi-head attention has W^Q, W^K, W^V",
        wrong="Unlike self-attention, multi-head attention uses the matrices W^Q, W^K and W^V.",
        right="Self-attention and cross-attention differ in where their inputs come from; multi-head attention is "
        "about how many heads share the width. A single head has as many weights as 32 heads.",
        source=_MULTI_HEAD + "; Table 3, row A",
        wrong_version=lambda heads: _WithoutWeights() if heads == 1 else _heads_that_share(heads),
        right_version=_heads_that_share,
        test=_heads_do_not_change_the_count,
    ),
    Erratum(
        number=18,
        title="h heads cost h times as much",
        wrong="Attention of full width is computed h times.",
        right="Each of the h heads has the width d_model / h, so that together they cost about as much as one head of "
        "full width.",
        source=_MULTI_HEAD + ", last paragraph",
        wrong_version=lambda heads: MultiHeadAttention(d_model=_D_MODEL, num_heads=heads, d_k=_D_MODEL, d_v=_D_MODEL),
        right_version=_heads_that_share,
        test=_eight_heads_cost_one,
    ),
    Erratum(
        number=51,
        title="A head sees a part of the embedding",
        wrong="The embedding is split among the heads: a head sees a part of it.",
        right="W_i^Q, W_i^K and W_i^V have d_model rows: every head reads the whole vector of every word, through d_k "
        "numbers of its own. What is split is the width of the queries, keys and values.",
        source=_MULTI_HEAD + ", the shapes of the projections",
        wrong_version=lambda layer, x: x[0, :, :8] @ layer.q_proj.weight[:8, :8].T,
        right_version=lambda layer, x: layer.queries(x)[0, 0],
        test=_reads_the_whole_word,
    ),
)
