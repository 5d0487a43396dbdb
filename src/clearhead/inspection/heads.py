"""One attention head with all its numbers: queries, keys, values, scores, mask, weights, output (equation 1).

Shapes: T queries, S keys, D d_model, K key width (d_k), V value width (d_v), H heads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    import torch
    from jaxtyping import Bool, Float32
    from torch import Tensor

    from clearhead.model.attention import MultiHeadAttention
    from clearhead.model.transformer import Transformer

AttentionName = Literal["encoder", "decoder", "cross"]
"""Encoder self-attention, decoder self-attention, or cross-attention to the source."""
ATTENTIONS: tuple[AttentionName, ...] = get_args(AttentionName)


@dataclass(frozen=True, eq=False)
class Projections:
    """Inputs, queries, keys and values of all heads of one attention."""

    inputs: Float32[np.ndarray, "T D"]
    """Input of the query projection."""
    memory: Float32[np.ndarray, "S D"]
    """Input of the key and value projections; in self-attention the same as `inputs`."""
    queries: Float32[np.ndarray, "H T K"]
    """Queries; with rotary positions, after the rotation."""
    keys: Float32[np.ndarray, "H S K"]
    values: Float32[np.ndarray, "H S V"]


@dataclass(frozen=True, eq=False)
class Head:
    """One head of one layer on one sentence: the terms of equation 1, as the model computed them.

    queries = inputs W^Q, keys = memory W^K, values = memory W^V (each plus its bias, if there is one; queries and keys
    rotated, if the model has rotary positions); scores = queries keys^T * scale + position_scores, minus infinity where
    `mask` is False; weights = softmax(scores); outputs = weights values; `contributions` = outputs W^O is what the head
    adds to its sub-layer's output.
    """

    attention: AttentionName
    layer: int
    """Layer number, counted from 0."""
    head: int
    inputs: Float32[np.ndarray, "T D"] = field(repr=False)
    memory: Float32[np.ndarray, "S D"] = field(repr=False)
    w_q: Float32[np.ndarray, "D K"] = field(repr=False)
    w_k: Float32[np.ndarray, "D K"] = field(repr=False)
    w_v: Float32[np.ndarray, "D V"] = field(repr=False)
    w_o: Float32[np.ndarray, "V D"] = field(repr=False)
    biases: tuple[np.ndarray, np.ndarray, np.ndarray] | None = field(repr=False)
    """Biases of queries, keys and values, if the model has them."""
    queries: Float32[np.ndarray, "T K"] = field(repr=False)
    keys: Float32[np.ndarray, "S K"] = field(repr=False)
    values: Float32[np.ndarray, "S V"] = field(repr=False)
    scale: float
    """1 / sqrt(d_k), or 1 if the model does not scale."""
    position_scores: Float32[np.ndarray, "T S"] | None = field(repr=False)
    """Scores added by relative positions; None without relative positions."""
    mask: Bool[np.ndarray, "T S"] = field(repr=False)
    """True where the query may attend to the key."""
    weights: Float32[np.ndarray, "T S"] = field(repr=False)

    @property
    def scores(self) -> Float32[np.ndarray, "T S"]:
        """The input of the softmax; minus infinity where masked."""
        scores = (self.queries @ self.keys.T) * np.float32(self.scale)
        if self.position_scores is not None:
            scores = scores + self.position_scores
        return np.where(self.mask, scores, np.float32("-inf"))

    @property
    def weighted_values(self) -> Float32[np.ndarray, "T S V"]:
        """Each value times its weight; their sum over the keys is the output."""
        return self.weights[:, :, None] * self.values[None]

    @property
    def outputs(self) -> Float32[np.ndarray, "T V"]:
        """The weighted sums of the values: head_i of section 3.2.2."""
        return self.weights @ self.values

    @property
    def contributions(self) -> Float32[np.ndarray, "T D"]:
        """The head's addition to the sub-layer's output: `outputs` times its rows of W^O."""
        return self.outputs @ self.w_o

    @classmethod
    def of(
        cls,
        module: MultiHeadAttention,
        projected: Projections,
        weights: Float32[np.ndarray, "T S"],
        position_scores: Float32[np.ndarray, "T S"] | None,
        *,
        attention: AttentionName,
        layer: int,
        head: int,
    ) -> Head:
        """Return one head of an attention.

        Args:
            module: The attention module.
            projected: Its inputs, queries, keys and values.
            weights: Attention weights of the head.
            position_scores: Scores added by relative positions; None without them.
            attention: `encoder`, `decoder` or `cross`.
            layer: Layer number, counted from 0.
            head: Head number, counted from 0.
        """

        def rows(of: torch.nn.Linear) -> tuple[np.ndarray, np.ndarray | None]:
            width = of.out_features // module.num_heads
            own = slice(head * width, (head + 1) * width)
            return _numbers(of.weight[own].T), None if of.bias is None else _numbers(of.bias[own])

        (w_q, b_q), (w_k, b_k), (w_v, b_v) = map(rows, (module.q_proj, module.k_proj, module.v_proj))
        value_width = w_v.shape[1]
        num_queries, num_keys = weights.shape
        may_see = np.ones((num_queries, num_keys), dtype=bool)
        return cls(
            attention=attention,
            layer=layer,
            head=head,
            inputs=projected.inputs,
            memory=projected.memory,
            w_q=w_q,
            w_k=w_k,
            w_v=w_v,
            w_o=_numbers(module.out_proj.weight[:, head * value_width : (head + 1) * value_width].T),
            biases=None if b_q is None or b_k is None or b_v is None else (b_q, b_k, b_v),
            queries=projected.queries[head],
            keys=projected.keys[head],
            values=projected.values[head],
            scale=1.0 / math.sqrt(w_q.shape[1]) if module.scale else 1.0,
            position_scores=position_scores,
            mask=np.tril(may_see) if attention == "decoder" else may_see,
            weights=weights,
        )


def attentions(model: Transformer, name: AttentionName) -> list[MultiHeadAttention]:
    """Return the attention modules, one per layer; empty if the model has no such attention."""
    config = model.config
    modules: Iterable[Any] = ()
    if name == "encoder" and config.num_encoder_layers:
        modules = (layer.self_attn for layer in model.encoder.layers)
    elif name == "decoder" and config.num_decoder_layers:
        modules = (layer.self_attn for layer in model.decoder.layers)
    elif name == "cross" and config.is_encoder_decoder:
        modules = (layer.cross_attn for layer in model.decoder.layers)
    return list(modules)


def relative_positions(model: Transformer, name: AttentionName, length: int) -> Float32[np.ndarray, "H T T"] | None:
    """Return the scores that relative positions add in an attention; None without relative positions."""
    from clearhead.model.other_positions import RelativePositions

    if name == "cross" or not attentions(model, name):
        return None
    stack = model.encoder if name == "encoder" else model.decoder
    if not isinstance(stack.relative_positions, RelativePositions):
        return None
    return _numbers(stack.relative_positions(length)[0])


def projections(modules: Sequence[MultiHeadAttention], run: Callable[[], Any]) -> list[Projections]:
    """Return inputs, queries, keys and values of attention modules while the model runs on one sentence.

    Args:
        modules: The attention modules to record, each run once.
        run: Runs the model.
    """
    with _watching([projection for part in modules for projection in (part.q_proj, part.k_proj, part.v_proj)]) as seen:
        run()
    projected = []
    for module in modules:
        (inputs, q), (memory, k), (_, v) = (seen[layer] for layer in (module.q_proj, module.k_proj, module.v_proj))
        q, k, v = (vectors.view(*vectors.shape[:-1], module.num_heads, -1).transpose(1, 2) for vectors in (q, k, v))
        if module.rotary is not None:
            q, k = module.rotary(q, 0), module.rotary(k, 0)
        projected.append(Projections(_numbers(inputs[0]), *(_numbers(vectors[0]) for vectors in (memory, q, k, v))))
    return projected


@contextmanager
def _watching(linears: Sequence[torch.nn.Linear]) -> Iterator[dict[torch.nn.Linear, tuple[Tensor, Tensor]]]:
    """Record the input and output of linear layers in this thread; the hooks are removed at the end."""
    recorder = _Recorder(threading.get_ident())
    handles = [linear.register_forward_hook(recorder) for linear in linears]
    try:
        yield recorder.seen
    finally:
        for handle in handles:
            handle.remove()


class _Recorder:
    """Records what passes through layers in one thread; in a copy of the model for another process it does nothing."""

    def __init__(self, thread: int | None = None) -> None:
        self.seen: dict[torch.nn.Linear, tuple[Tensor, Tensor]] = {}
        self._thread = thread

    def __call__(self, module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if threading.get_ident() == self._thread:
            self.seen[module] = (inputs[0], output)

    def __reduce__(self) -> tuple[type[_Recorder], tuple[()]]:
        return _Recorder, ()


def _numbers(values: Tensor) -> Float32[np.ndarray, "..."]:
    return values.detach().float().cpu().numpy()
