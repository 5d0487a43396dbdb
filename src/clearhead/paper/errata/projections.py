"""Mistakes in study notes about the projections of multi-head attention (section 3.2.2).

Shapes: T length, D d_model, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.config.presets import paper_base
from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.transformer import Transformer
from clearhead.paper.counts import counted_flops
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import (
    build,
    compared,
    count_weights,
    encoder_layer,
    head_matrices,
    input_of,
    on_meta,
    small_model,
    standard_normal,
    word_ids,
)
from clearhead.paper.plain import attention, matmul

_D_MODEL, _HEADS, _D_K = 512, 8, 64
_ROW_A = (1, 4, 8, 16, 32)
"""Numbers of heads in row A of Table 3, plus the base model's 8."""


class _WithoutWeights(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x, x)[0]


def _has_the_papers_weights(make: Callable[[ModelConfig], list[nn.Module]]) -> CheckResult:
    """The base model has 18 attention sub-layers, each with as many weights as the printed matrices.

    Section 3.2.2 prints 2 h matrices of d_model x d_k, h of d_model x d_v, and one of h d_v x d_model. The same holds
    with d_k = 16 and d_k = 32 (Table 3, row B).
    """
    counts, is_printed = {}, True
    for d_k in (_D_K, 16, 32):
        config = paper_base().model_copy(update={"d_k": d_k, "d_v": _D_K})
        with torch.device("meta"):
            counts[d_k] = [count_weights(sublayer) for sublayer in make(config)]
        is_printed &= counts[d_k] == 18 * [_printed_weights(config)]
    base = counts[_D_K]
    return CheckResult(
        is_printed,
        f"{base[0]:,} weights in a sub-layer, {sum(base):,} in {len(base)}; with d_k = 16, "
        f"{counts[16][0]:,} in a sub-layer",
        counts,
    )


def _printed_weights(config: ModelConfig) -> int:
    """Return the weights of the matrices that section 3.2.2 prints."""
    h, d_model, d_k, d_v = config.num_heads, config.d_model, config.key_dim, config.value_dim
    return 2 * h * d_model * d_k + h * d_model * d_v + h * d_v * d_model


def _attention_of_the_model(config: ModelConfig) -> list[nn.Module]:
    return [module for module in Transformer(config).modules() if isinstance(module, MultiHeadAttention)]


def _linear(*widths: tuple[int, int]) -> nn.Module:
    return nn.ModuleList(nn.Linear(inputs, outputs, bias=False) for inputs, outputs in widths)


def _matrix_by_matrix(config: ModelConfig) -> nn.Module:
    """Return the matrices as the paper prints them: three for each head, and one that combines the heads."""
    to_key, to_value = (config.d_model, config.key_dim), (config.d_model, config.value_dim)
    heads = config.num_heads
    return _linear(*[to_key, to_key, to_value] * heads, (heads * config.value_dim, config.d_model))


def _fused(config: ModelConfig) -> nn.Module:
    keys, values = config.num_heads * config.key_dim, config.num_heads * config.value_dim
    return _linear((config.d_model, 2 * keys + values), (values, config.d_model))


def _can_look_at_the_next(weigh: Callable[[Tensor, Tensor, Tensor], Tensor]) -> CheckResult:
    """Each of eight different words can give its largest weight to the next word.

    W^Q and W^K are set by hand to achieve this. Random X, W^Q and W^K give the weights of equation 1 for X W^Q and
    X W^K, calculated number by number.
    """
    looks_at = weigh(torch.eye(8), 20 * torch.eye(8).roll(1, dims=1), torch.eye(8)).argmax(dim=-1)
    hits = int((looks_at == torch.arange(1, 9) % 8).sum())
    own = int((looks_at == torch.arange(8)).sum())
    x, w_q, w_k = standard_normal(5, 8, seed=31), standard_normal(8, 8, seed=32), standard_normal(8, 8, seed=34) / 8
    queries, keys = (matmul(x.tolist(), w.tolist()) for w in (w_q, w_k))
    return compared(
        weigh(x, w_q, w_k),
        attention(queries, keys, keys)[1],
        to="equation 1",
        holds=hits == 8,
        figures=f"{hits} of 8 words give the next one the largest weight, {own} themselves",
    )


def _projected(x: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
    """Return the weights of the package's attention with these projections."""
    sublayer = build(lambda: MultiHeadAttention(d_model=8, num_heads=1))
    weights: list[Tensor] = []
    sublayer.q_proj.weight.copy_(w_q.T)
    sublayer.k_proj.weight.copy_(w_k.T)
    sublayer(x[None], x[None], weights=weights)
    return weights[0][0, 0]


def _weights(q: Tensor, k: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, k)[1]


def _are_what_attention_averages(values_of: Callable[[Transformer, Tensor], Tensor]) -> CheckResult:
    """Replacing a sentence's last word changes the second layer's value of its first word.

    The second layer's self-attention returns W^O times the averages of these values, calculated number by number with
    its queries and keys.
    """
    model, ids = small_model(), word_ids(5, 7, 4, 9)
    sublayer = encoder_layer(model, 1).self_attn
    values = values_of(model, ids)
    moved = (values - values_of(model, word_ids(5, 7, 4, 3)))[0].abs().max().item()
    x = _input_of_the_second_layer(model, ids)
    heads = values.reshape(len(values), sublayer.num_heads, -1).transpose(0, 1)  # (H, T, d_v)
    to_queries, to_keys, _ = head_matrices(sublayer)
    averages = [
        torch.tensor(attention(matmul(x.tolist(), w_q), matmul(x.tolist(), w_k), head.tolist())[0])
        for w_q, w_k, head in zip(to_queries, to_keys, heads, strict=True)
    ]
    return compared(
        torch.cat(averages, dim=1) @ sublayer.out_proj.weight.T,
        sublayer(x[None])[0],
        to="the sub-layer's",
        holds=moved > 0.01,
        figures=f"the value of the first word changes by {moved:.2f} when the last word is replaced",
    )


def _input_of_the_second_layer(model: Transformer, ids: Tensor) -> Tensor:
    return input_of(encoder_layer(model, 1), lambda: model.encode(ids))[0]


def _second_layer_values(model: Transformer, ids: Tensor) -> Tensor:
    sublayer = encoder_layer(model, 1).self_attn
    return sublayer.keys_and_values(_input_of_the_second_layer(model, ids)[None])[1][0].transpose(0, 1)  # (T, H, d_v)


def _word_vectors(model: Transformer, ids: Tensor) -> Tensor:
    return functional.embedding(ids, model.source_embedding.weight)[0]


def _second_layer_keys(model: Transformer, ids: Tensor) -> Tensor:
    return encoder_layer(model, 1).self_attn.k_proj(_input_of_the_second_layer(model, ids))


def _projected_embeddings(model: Transformer, ids: Tensor) -> Tensor:
    return encoder_layer(model, 1).self_attn.v_proj(model.source_embedding(ids))[0]


def _heads_look_at_different_places(weigh: Callable[[MultiHeadAttention, Tensor], Tensor]) -> CheckResult:
    """Each of the other three heads differs from the first by more than 0.1 in some weight.

    The weights of head i are those of equation 1 for X W_i^Q and X W_i^K, calculated number by number.
    """
    sublayer, x = build(lambda: MultiHeadAttention(d_model=16, num_heads=4)), standard_normal(6, 16, seed=30)
    weights = weigh(sublayer, x)  # (H, T, T)
    differences = [(head - weights[0]).abs().max().item() for head in weights[1:]]
    to_queries, to_keys, _ = head_matrices(sublayer)
    projected = [(matmul(x.tolist(), q), matmul(x.tolist(), k)) for q, k in zip(to_queries, to_keys, strict=True)]
    return compared(
        weights,
        torch.tensor([attention(queries, keys, keys)[1] for queries, keys in projected]),
        to="equation 1 for each head",
        holds=min(differences) > 0.1,
        figures=f"other heads differ from the first by at least {min(differences):.2f}",
    )


def _four_times_the_same(sublayer: MultiHeadAttention, x: Tensor) -> Tensor:
    return _weights(x, x).expand(4, -1, -1)


def _four_heads(sublayer: MultiHeadAttention, x: Tensor) -> Tensor:
    weights: list[Tensor] = []
    sublayer(x[None], x[None], weights=weights)
    return weights[0][0]


def _slices(sublayer: MultiHeadAttention, x: Tensor) -> Tensor:
    return torch.stack([_weights(part, part) for part in x.chunk(4, dim=1)])


def _at_four_temperatures(sublayer: MultiHeadAttention, x: Tensor) -> Tensor:
    q, k = sublayer.queries(x[None])[0, 0], sublayer.keys_and_values(x[None])[0][0, 0]
    return torch.stack([_weights(temperature * q, k) for temperature in (1, 2, 4, 8)])


def _heads_do_not_change_the_count(make: Callable[[ModelConfig], nn.Module]) -> CheckResult:
    """A sub-layer has 4 d_model^2 weights for each number of heads in row A of Table 3 and for 8.

    Row A leaves the number of weights blank, which means that it is unchanged. One head with d_k = 16, d_v = 64 has as
    many weights as the matrices of section 3.2.2.
    """
    narrow = ModelConfig(num_heads=1, d_k=16, d_v=64)
    configs = [*(ModelConfig(num_heads=heads) for heads in _ROW_A), narrow]
    counts = [count_weights(on_meta(partial(make, config))) for config in configs]
    return CheckResult(
        counts == [*len(_ROW_A) * [4 * _D_MODEL**2], _printed_weights(narrow)],
        f"at h = {', '.join(map(str, _ROW_A))}: {', '.join(f'{count:,}' for count in counts[:-1])} weights; one narrow "
        f"head: {counts[-1]:,}",
        counts,
    )


def _sublayer(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        d_model=config.d_model, num_heads=config.num_heads, d_k=config.key_dim, d_v=config.value_dim
    )


def _with_shared_keys(config: ModelConfig) -> nn.Module:
    return _linear((512, 512), *2 * [(512, 512 // config.num_heads)], (512, 512))


def _eight_heads_cost_one(make: Callable[[int], MultiHeadAttention]) -> CheckResult:
    """Eight heads take as many multiply-adds as one head of full width, with an error below 10 %.

    The multiply-adds are counted, over 64 positions. One head of full width takes 4 n d^2 + 2 n^2 d; eight heads give
    eight sets of attention weights.
    """
    n = 64
    full = 2 * (4 * n * _D_MODEL**2 + 2 * n**2 * _D_MODEL)  # a multiply-add is two operations
    x, costs, maps = torch.zeros(1, n, _D_MODEL, device="meta"), {}, {}
    for heads in (1, _HEADS):
        sublayer, weights = on_meta(partial(make, heads)), list[Tensor]()
        costs[heads] = counted_flops(partial(sublayer, x, x, weights=weights)) / full
        maps[heads] = weights[0].size(1)
    return CheckResult(
        all(abs(cost - 1) < 0.1 for cost in costs.values()) and all(maps[heads] == heads for heads in maps),
        f"multiply-adds relative to one head of full width: {costs[1]:.2f} for 1 head, {costs[_HEADS]:.2f} for 8, with "
        f"{maps[_HEADS]} sets of weights",
        (costs, maps),
    )


def _heads_of_width(heads: int, width: int) -> MultiHeadAttention:
    return MultiHeadAttention(d_model=_D_MODEL, num_heads=heads, d_k=width, d_v=width)


def _reads_the_whole_word(queries: Callable[[MultiHeadAttention, Tensor], Tensor]) -> CheckResult:
    """Every number of the first head's queries depends on all 32 numbers of its word.

    The queries are x W_1^Q, calculated number by number.
    """
    layer = build(lambda: MultiHeadAttention(d_model=32, num_heads=4))
    x = standard_normal(1, 5, 32, seed=33).requires_grad_()
    projected = queries(layer, x)
    felt = [torch.autograd.grad(number, x, retain_graph=True)[0][0, 0] != 0 for number in projected[0]]
    fewest = int(torch.stack(felt).sum(dim=-1).min())
    return compared(
        projected.detach(),
        matmul(x[0].tolist(), head_matrices(layer)[0][0]),
        to="x W_1^Q",
        holds=fewest == 32,
        figures=f"a number of a query depends on {fewest} of 32 numbers of its word",
    )


PROJECTIONS_ERRATA = (
    erratum(
        "Self-attention without parameters",
        wrong_version=lambda config: [_WithoutWeights() for _ in range(18)],
        right_version=_attention_of_the_model,
        test=_has_the_papers_weights,
        mutants={
            "one matrix of 512 x 2048": lambda config: 18 * [_linear((512, 2048))],
            "without W^O": lambda config: 18 * [_linear(*3 * [(512, config.num_heads * config.key_dim)])],
            "twelve sub-layers": lambda config: _attention_of_the_model(config)[:12],
            "heads of full width": lambda config: 18 * [_linear(*3 * [(512, 4096)], (4096, 512))],
        },
        also_right={
            "the printed matrices one by one": lambda config: 18 * [_matrix_by_matrix(config)],
            "queries, keys and values by one matrix": lambda config: 18 * [_fused(config)],
        },
    ),
    erratum(
        "Q, K and V are the embeddings",
        wrong_version=lambda x, w_q, w_k: _weights(x, x),
        right_version=_projected,
        test=_can_look_at_the_next,
        mutants={
            "a fixed shift that ignores the words": lambda x, w_q, w_k: torch.eye(len(x)).roll(1, dims=1),
            "keys not projected": lambda x, w_q, w_k: _weights(x @ w_q, x),
            "W^Q and W^K exchanged": lambda x, w_q, w_k: _weights(x @ w_k, x @ w_q),
        },
        also_right={"one matrix W^Q W^K^T": lambda x, w_q, w_k: _weights(x @ (w_q @ w_k.T), x)},
    ),
    erratum(
        "Values are the original word vectors",
        wrong_version=_word_vectors,
        right_version=_second_layer_values,
        test=_are_what_attention_averages,
        mutants={
            "the previous layer's output, not projected": _input_of_the_second_layer,
            "keys": _second_layer_keys,
            "projected embeddings": _projected_embeddings,
        },
    ),
    erratum(
        "Multi-head attention repeats the same attention",
        wrong_version=_four_times_the_same,
        right_version=_four_heads,
        test=_heads_look_at_different_places,
        mutants={
            "a slice of the embedding for each head": _slices,
            "random weights": lambda sublayer, x: standard_normal(4, 6, 6, seed=35).softmax(dim=-1),
            "one projection at four temperatures": _at_four_temperatures,
        },
    ),
    erratum(
        "Only multi-head attention has W^Q, W^K, W^V",
        wrong_version=lambda config: _WithoutWeights() if config.num_heads == 1 else _sublayer(config),
        right_version=_sublayer,
        test=_heads_do_not_change_the_count,
        mutants={
            "one head has no W^O": lambda config: (
                _sublayer(config) if config.num_heads > 1 else _linear(*3 * [(512, 512)])
            ),
            "heads of 64 whatever h": lambda config: _heads_of_width(config.num_heads, 64),
            "one set of keys and values for all heads": _with_shared_keys,
            "one matrix of 512 x 2048": lambda config: _linear((512, 2048)),
        },
        also_right={
            "the printed matrices one by one": _matrix_by_matrix,
            "queries, keys and values by one matrix": _fused,
        },
    ),
    erratum(
        "h heads cost h times as much",
        wrong_version=lambda heads: _heads_of_width(heads, _D_MODEL),
        right_version=lambda heads: _sublayer(ModelConfig(num_heads=heads)),
        test=_eight_heads_cost_one,
        mutants={
            "eight heads of 32": lambda heads: _heads_of_width(heads, 512 if heads == 1 else 32),
            "one head": lambda heads: _sublayer(ModelConfig(num_heads=1)),
            "heads of 64, also one": lambda heads: _heads_of_width(heads, 64),
        },
    ),
    erratum(
        "A head sees a part of the embedding",
        wrong_version=lambda layer, x: x[0, :, :8] @ layer.q_proj.weight[:8, :8].T,
        right_version=lambda layer, x: layer.queries(x)[0, 0],
        test=_reads_the_whole_word,
        mutants={
            "all numbers but the last": lambda layer, x: x[0, :, :31] @ layer.q_proj.weight[:8, :31].T,
            "the second head's matrix": lambda layer, x: layer.queries(x)[0, 1],
            "columns of the matrix in place of rows": lambda layer, x: x[0] @ layer.q_proj.weight[:, :8],
        },
        also_right={"row by row": lambda layer, x: torch.stack([layer.q_proj.weight[:8] @ word for word in x[0]])},
    ),
)
