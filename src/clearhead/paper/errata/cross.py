"""Mistakes in study notes about cross-attention (sections 3.1 and 3.2.3).

Shapes: S source length, T target length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.model.attention import MultiHeadAttention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import build, input_of, small_model, standard_normal, word_ids

_SECTION = "Section 3.2.3: queries from the previous decoder layer, keys and values from the output of the encoder"


def _returns_what_the_memory_holds(
    attend: Callable[[MultiHeadAttention, Tensor, Tensor], Tensor],
) -> CheckResult:
    """From a memory with the same vector m at every position, each target position gets W^O W^V m.

    What its query is must not matter.
    """
    attention = build(lambda: MultiHeadAttention(d_model=16, num_heads=2))
    states, message = standard_normal(1, 5, 16, seed=50), standard_normal(16, seed=51)
    output = attend(attention, states, message.expand(1, 5, 16))
    wanted = attention.out_proj.weight @ (attention.v_proj.weight @ message)
    has_shape = output.shape == states.shape
    distance = (output - wanted).abs().max().item()
    return CheckResult(
        has_shape and distance < 1e-4,
        f"shape {'as expected' if has_shape else 'wrong'}, largest difference from W^O W^V m {distance:.2f}",
    )


def _values_from_the_decoder(attention: MultiHeadAttention, states: Tensor, memory: Tensor) -> Tensor:
    keys, _ = attention.keys_and_values(memory)
    _, values = attention.keys_and_values(states)
    return attention.attend(attention.queries(memory), keys, values)


def _ours(attention: MultiHeadAttention, states: Tensor, memory: Tensor) -> Tensor:
    return attention(states, memory)


def _questions_know_the_whole_prefix(queries_of: Callable[[Transformer, Tensor, Tensor], Tensor]) -> CheckResult:
    """Replacing the second target token changes the cross-attention query of the fourth position.

    What is compared is the input of the query projection.
    """
    model = small_model()
    source = word_ids(5, 7, 4, 2)
    one, other = (queries_of(model, source, word_ids(1, second, 6, 9)) for second in (3, 8))
    moved = (one - other)[0, 3].abs().max().item()
    return CheckResult(
        moved > 0.01, f"the fourth position's query input changes by {moved:.2f} when the second token is replaced"
    )


def _embedded_outputs(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    return model.target_embedding(target)


def _states_after_self_attention(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    layer = model.decoder.layers[0]
    assert isinstance(layer, DecoderLayer)
    assert layer.cross_attn is not None
    return input_of(layer.cross_attn.q_proj, lambda: model(source, target))


def _encoder_learns_from_the_target(score: Callable[[Transformer, Tensor, Tensor], Tensor]) -> CheckResult:
    """The target's loss has a gradient for every weight tensor of the encoder.

    Replacing a source word changes the logits.
    """
    model = small_model().requires_grad_()
    target, wanted = word_ids(1, 6, 9, 3), torch.tensor([6, 9, 3, 2])
    weights = list(model.encoder.parameters())
    logits = score(model, word_ids(5, 7, 4, 2), target)
    loss = functional.cross_entropy(logits[0], wanted)
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    reached = sum(gradient is not None and bool((gradient != 0).any()) for gradient in gradients)
    moved = (logits - score(model, word_ids(5, 8, 4, 2), target)).abs().max().item()
    return CheckResult(
        reached == len(weights) and moved > 0.01,
        f"{reached} of {len(weights)} weight tensors of the encoder have a gradient, another source word changes the "
        f"logits by {moved:.2f}",
    )


def _without_the_encoder(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    memory, mask = model.encode(source)
    return model.decode(target, torch.zeros_like(memory), mask)[0]


CROSS_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=22,
        title="Queries, keys and values of cross-attention exchanged",
        wrong="The encoder's outputs serve as query and key of the decoder's second attention, and the value is "
        "the decoder's input.",
        right="The decoder provides the queries; the encoder's output provides keys and values. If source and target "
        "are equally long, both versions return the same shape.",
        source=_SECTION,
        wrong_version=_values_from_the_decoder,
        right_version=_ours,
        test=_returns_what_the_memory_holds,
    ),
    Erratum(
        number=23,
        title="Queries are the previous output",
        wrong="The queries of cross-attention are the previous output of the decoder.",
        right="They are computed from the states of the preceding sub-layer, the masked self-attention, which depend "
        "on the whole prefix.",
        source=_SECTION + "; figure 1",
        wrong_version=_embedded_outputs,
        right_version=_states_after_self_attention,
        test=_questions_know_the_whole_prefix,
    ),
    Erratum(
        number=24,
        title="The encoder's output is unrelated to the target",
        wrong="The output of the encoder has nothing to do with the requested output yet.",
        right="Every decoder layer attends to it, and it is trained by the target's loss alone.",
        source=_SECTION + "; section 3.1",
        wrong_version=_without_the_encoder,
        right_version=lambda model, source, target: model(source, target),
        test=_encoder_learns_from_the_target,
    ),
)
