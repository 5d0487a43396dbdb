"""Mistakes in study notes about cross-attention (sections 3.1 and 3.2.3).

Shapes: S source length, T target length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.model.attention import MultiHeadAttention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import (
    EXACT,
    build,
    compared,
    difference,
    head_matrices,
    input_of,
    small_model,
    standard_normal,
    word_ids,
)
from clearhead.paper.plain import multi_head


def _returns_what_the_memory_holds(
    attend: Callable[[MultiHeadAttention, Tensor, Tensor], Tensor],
) -> CheckResult:
    """From a memory with the same vector m at every position, each target position gets W^O W^V m.

    What its query is must not matter. Random states and another memory give the output of section 3.2.2, calculated
    number by number.
    """
    attention = build(lambda: MultiHeadAttention(d_model=16, num_heads=2))
    states, message = standard_normal(1, 5, 16, seed=50), standard_normal(16, seed=51)
    output = attend(attention, states, message.expand(1, 5, 16))
    distance = difference(output, (attention.out_proj.weight @ (attention.v_proj.weight @ message)).expand(1, 5, 16))
    memory = 2 * standard_normal(1, 5, 16, seed=52)
    matrices = head_matrices(attention)
    return compared(
        attend(attention, states, memory)[0],
        multi_head(states[0].tolist(), memory[0].tolist(), *matrices, attention.out_proj.weight.T.tolist()),
        to="section 3.2.2",
        holds=distance < EXACT,
        figures=f"shape {'as expected' if output.shape == states.shape else 'wrong'}, largest difference from "
        f"W^O W^V m {distance:.2f}",
    )


def _values_from_the_decoder(attention: MultiHeadAttention, states: Tensor, memory: Tensor) -> Tensor:
    keys, _ = attention.keys_and_values(memory)
    _, values = attention.keys_and_values(states)
    return attention.attend(attention.queries(memory), keys, values)


def _ours(attention: MultiHeadAttention, states: Tensor, memory: Tensor) -> Tensor:
    return attention(states, memory)


def _mean_of_values(attention: MultiHeadAttention, states: Tensor, memory: Tensor) -> Tensor:
    _, values = attention.keys_and_values(memory)
    return attention.out_proj(values.mean(dim=2).flatten(1)[:, None].expand_as(states))


def _with_queries_as_keys(attention: MultiHeadAttention, states: Tensor, memory: Tensor) -> Tensor:
    keys, values = attention.keys_and_values(memory)
    return attention.attend(keys, attention.queries(states), values)


def _questions_know_the_whole_prefix(queries_of: Callable[[Transformer, Tensor, Tensor], Tensor]) -> CheckResult:
    """Replacing the second target token changes the cross-attention query of the fourth position.

    What is compared is the input of the query projection. For each position it is the last one that the first
    sub-layer returns, without a mask, for the target that ends there.
    """
    model = small_model()
    source, target = word_ids(5, 7, 4, 2), word_ids(1, 3, 6, 9)
    queries = queries_of(model, source, target)[0]
    moved = (queries - queries_of(model, source, word_ids(1, 8, 6, 9))[0])[3].abs().max().item()
    ends = [_after_self_attention(model, target[:, : length + 1])[0, -1] for length in range(4)]
    return compared(
        queries,
        torch.stack(ends),
        to="the first sub-layer's",
        holds=moved > 0.01,
        figures=f"the fourth position's query input changes by {moved:.2f} when the second token is replaced",
    )


def _first_layer(model: Transformer) -> DecoderLayer:
    layer = model.decoder.layers[0]
    assert isinstance(layer, DecoderLayer)
    return layer


def _after_self_attention(model: Transformer, target: Tensor) -> Tensor:
    """Return the states after self-attention in which no token is hidden."""
    layer, x = _first_layer(model), model.target_embedding(target)
    return layer.self_attn_residual.add_and_norm(x, layer.self_attn)


def _before_the_norm(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    return input_of(_first_layer(model).self_attn_residual.norm, lambda: model(source, target))


def _means_of_prefixes(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    x = model.target_embedding(target)
    return x.cumsum(dim=1) / torch.arange(1, x.size(1) + 1)[:, None]


def _embedded_outputs(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    return model.target_embedding(target)


def _states_after_self_attention(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    cross_attn = _first_layer(model).cross_attn
    assert cross_attn is not None
    return input_of(cross_attn.q_proj, lambda: model(source, target))


def _encoder_learns_from_the_target(score: Callable[[Transformer, Tensor, Tensor], Tensor]) -> CheckResult:
    """The target's loss has a gradient for every weight tensor of the encoder and of every layer's cross-attention.

    The keys and values of every layer are computed from the encoder's output, and replacing a source word changes the
    logits.
    """
    model = small_model().requires_grad_()
    source, target, wanted = word_ids(5, 7, 4, 2), word_ids(1, 6, 9, 3), torch.tensor([6, 9, 3, 2])
    names = [name for name, _ in model.named_parameters() if name.startswith("encoder.") or ".cross_attn." in name]
    logits = score(model, source, target)
    loss = functional.cross_entropy(logits[0], wanted)
    gradients = torch.autograd.grad(loss, [model.get_parameter(name) for name in names], allow_unused=True)
    reached = [gradient is not None and bool((gradient != 0).any()) for gradient in gradients]
    moved = (logits - score(model, word_ids(5, 8, 4, 2), target)).abs().max().item()
    attended = [
        input_of(model.get_submodule(f"decoder.layers.{layer}.cross_attn.k_proj"), lambda: score(model, source, target))
        for layer in range(len(model.decoder.layers))
    ]
    distance = max(difference(memory, model.encode(source)[0]) for memory in attended)
    return CheckResult(
        all(reached) and moved > 0.01 and distance < EXACT,
        f"{sum(reached)} of {len(names)} weight tensors of encoder and cross-attention have a gradient, another source "
        f"word changes the logits by {moved:.2f}, what is attended to differs from the encoder's output by "
        f"{distance:.2f}",
        torch.cat([logits.detach().flatten(), torch.tensor(reached)]),
    )


def _memory_beside_the_embeddings(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """Return the logits of a decoder that gets the mean of the memory with its input, not by cross-attention."""
    memory, mask = model.encode(source)
    embeddings = model.target_embedding
    hook = embeddings.register_forward_hook(lambda _, __, output: output + memory.mean(dim=1, keepdim=True))
    with hook:
        return model.output_proj(model.states(target, torch.zeros_like(memory), mask))


def _first_memory_alone(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    memory, mask = model.encode(source)
    return model.output_proj(model.states(target, torch.cat([memory[:, :1], 0 * memory[:, 1:]], dim=1), mask))


def _memory_without_gradient(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    memory, mask = model.encode(source)
    return model.decode(target, memory.detach(), mask)[0]


def _without_the_encoder(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    memory, mask = model.encode(source)
    return model.decode(target, torch.zeros_like(memory), mask)[0]


CROSS_ERRATA = (
    erratum(
        "Queries, keys and values of cross-attention exchanged",
        wrong_version=_values_from_the_decoder,
        right_version=_ours,
        test=_returns_what_the_memory_holds,
        mutants={
            "queries from the memory": lambda attention, states, memory: attention(memory, memory),
            "queries and keys exchanged": _with_queries_as_keys,
            "the mean of the values": _mean_of_values,
        },
    ),
    erratum(
        "Queries are the previous output",
        wrong_version=_embedded_outputs,
        right_version=_states_after_self_attention,
        test=_questions_know_the_whole_prefix,
        mutants={
            "the mean of the prefix's embeddings": _means_of_prefixes,
            "states that see the future": lambda model, source, target: _after_self_attention(model, target),
            "states before the norm": _before_the_norm,
        },
    ),
    erratum(
        "The encoder's output is unrelated to the target",
        wrong_version=_without_the_encoder,
        right_version=lambda model, source, target: model(source, target),
        test=_encoder_learns_from_the_target,
        mutants={
            "no cross-attention; the memory's mean is added to the embeddings": _memory_beside_the_embeddings,
            "the memory's first position alone": _first_memory_alone,
            "the encoder is not trained": _memory_without_gradient,
        },
    ),
)
