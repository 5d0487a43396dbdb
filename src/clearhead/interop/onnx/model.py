"""ONNX graphs of a Transformer: the encoder, the decoder, and the decoder with cached keys and values.

Inputs and outputs have the names that Hugging Face Optimum uses. Between the parts, states are rows [N, D].

Shapes: B sentences or beams, S source length, T positions given, P positions in the cache, N = B * S or B * T,
D d_model, H heads, K key width, V value width.
"""

from __future__ import annotations

import math
from typing import Any, assert_never

import numpy as np
import onnx
import torch
from onnx import TensorProto

from clearhead.config import ModelConfig
from clearhead.config.known import ANY, COMMON, EITHER, POSITIONS, Known
from clearhead.interop.onnx.graph import Graph
from clearhead.model import Transformer
from clearhead.model.position_tables import wave_frequencies

BATCH, SOURCE, TARGET = "batch_size", "encoder_sequence_length", "decoder_sequence_length"
PAST = f"past_{TARGET}"
INT64, FLOAT, DOUBLE = TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE
QUARTER_TURN = math.pi / 2
Shape = tuple[str | int, ...]

ONNX: Known = {
    **COMMON,
    "output_transform": EITHER,
    "num_target_segments": ANY,
    "positions": (*POSITIONS, "relative", "none"),
}
"""The settings that these graphs compute."""


def encoder_graph(model: Transformer, *, rounded: bool = False) -> onnx.ModelProto:
    """Return the graph from source ids and their mask [B, S] to the memory [B, S, D].

    Args:
        model: A model with encoder and decoder.
        rounded: Whether to quantize matrices to 8-bit integers, see `Graph`.

    Raises:
        ConfigError: If the weights exceed the size limit of a file.
    """
    graph, config = Graph(model, rounded=rounded), model.config
    stack = _Stack(graph, config, graph.input("input_ids", INT64, BATCH, SOURCE))
    mask = _source_mask(graph, "attention_mask")
    x, bias = stack.embedded(model.source_embedding), stack.bias(model.encoder.relative_positions)
    for layer in model.encoder.layers:
        y = stack.before(x, layer.self_attn_residual)
        own = stack.keys_and_values(y, layer.self_attn, stack.heads)
        x = stack.after(x, stack.attended(y, layer.self_attn, own, mask, bias), layer.self_attn_residual)
        x = stack.fed_forward(x, layer)
    memory = stack.unfolded(graph.norm(x, model.encoder.final_norm), config.d_model)
    graph.output("last_hidden_state", memory, BATCH, SOURCE, config.d_model)
    return graph.whole("encoder_model")


def decoder_graph(model: Transformer, *, with_past: bool, rounded: bool = False) -> onnx.ModelProto:
    """Return the graph from target ids [B, T] to the logits of the next tokens, and the keys and values to cache.

    Without a cache it reads the memory, and outputs the keys and values of target and memory. With a cache it reads
    these instead of the memory, and outputs the keys and values of the target, extended by T positions.

    Args:
        model: A model with encoder and decoder.
        with_past: Whether the graph reads a cache.
        rounded: Whether to quantize matrices to 8-bit integers, see `Graph`.

    Raises:
        ConfigError: If the weights exceed the size limit of a file.
    """
    graph, config, layers = Graph(model, rounded=rounded), model.config, model.decoder.layers
    ids = graph.input("input_ids", INT64, BATCH, TARGET)
    source_mask = _source_mask(graph, "encoder_attention_mask")
    past: list[list[str]] = []
    if with_past:
        for number in range(len(layers)):
            kept = _kept(config, number, "decoder", PAST) + _kept(config, number, "encoder", SOURCE)
            past.append([graph.input(f"past_key_values.{name}", FLOAT, *shape) for name, shape in kept])
        stack = _Stack(graph, config, ids, start=graph.op("Shape", past[0][0], start=2, end=3))
        others = [names[2:] for names in past]
    else:
        states = graph.input("encoder_hidden_states", FLOAT, BATCH, SOURCE, config.d_model)
        memory = graph.op("Reshape", states, np.array([-1, config.d_model]))
        stack, heads = _Stack(graph, config, ids), _heads(graph, config, states)
        others = [stack.keys_and_values(memory, layer.cross_attn, heads) for layer in layers]
    x, mask = stack.embedded(model.target_embedding), stack.causal_mask()
    bias = stack.bias(model.decoder.relative_positions)
    present: list[tuple[str, tuple[str, Shape]]] = []
    for number, layer in enumerate(layers):
        y = stack.before(x, layer.self_attn_residual)
        own = stack.keys_and_values(y, layer.self_attn, stack.heads)
        if with_past:
            own = [graph.op("Concat", *parts, axis=2) for parts in zip(past[number][:2], own, strict=True)]
            present += zip(own, _kept(config, number, "decoder", f"{PAST} + {TARGET}"), strict=True)
        else:
            present += zip(own, _kept(config, number, "decoder", TARGET), strict=True)
            present += zip(others[number], _kept(config, number, "encoder", SOURCE), strict=True)
        x = stack.after(x, stack.attended(y, layer.self_attn, own, mask, bias), layer.self_attn_residual)
        y = stack.before(x, layer.cross_attn_residual)
        x = stack.after(x, stack.attended(y, layer.cross_attn, others[number], source_mask), layer.cross_attn_residual)
        x = stack.fed_forward(x, layer)
    x = graph.norm(x, model.decoder.final_norm)
    if config.output_transform:
        x = graph.norm(stack.activated(graph.linear(x, model.output_transform.proj)), model.output_transform.norm)
    if config.output_scale:
        x = graph.op("Div", x, np.float32(math.sqrt(config.d_model)))
    logits = graph.linear(x, model.output_proj)
    graph.output("logits", stack.unfolded(logits, config.vocab_size), BATCH, TARGET, config.vocab_size)
    for value, (name, shape) in present:
        graph.output(f"present.{name}", value, *shape)
    return graph.whole("decoder_with_past_model" if with_past else "decoder_model")


class _Stack:
    """Nodes of the layers of one stack, encoder or decoder.

    Args:
        graph: The graph to which nodes are added.
        config: Settings of the model.
        ids: Name of the token ids [B, T].
        start: Name of the position of the first token [1]; None for position 0.
    """

    def __init__(self, graph: Graph, config: ModelConfig, ids: str, start: str | None = None) -> None:
        self.graph, self.config, self.ids = graph, config, ids
        self.heads = _heads(graph, config, ids)
        length = graph.op("Shape", ids, start=1)
        self.end = graph.op("Squeeze", length if start is None else graph.op("Add", start, length))
        first = np.int64(0) if start is None else graph.op("Squeeze", start)
        self.positions = graph.op("Range", first, self.end, np.int64(1))  # [T]

    def embedded(self, embedding: Any) -> str:
        """Return the embedded tokens with their positions [N, D]."""
        graph, config = self.graph, self.config
        x = graph.rows(embedding.weight, self.ids)
        if embedding.scale != 1.0:
            x = graph.op("Mul", x, np.float32(embedding.scale))
        if config.positions == "learned":
            x = graph.op("Add", x, graph.op("Gather", embedding.positions.weight, self.positions))
        elif embedding.positions is not None:
            x = graph.op("Add", x, self._sinusoids(embedding.positions))
        if embedding.segments is not None:
            x = graph.op("Add", x, graph.op("Gather", embedding.segments.weight, np.int64(0)))
        return graph.op("Reshape", graph.norm(x, embedding.norm), np.array([-1, config.d_model]))

    def causal_mask(self) -> str:
        """Return which positions each position may attend to [T, P + T]."""
        return self.graph.op("LessOrEqual", *self._pairs())

    def bias(self, relative: Any) -> str | None:
        """Return the bias of relative positions on the scores [1, H, T, P + T]; None without relative positions."""
        if relative is None:
            return None
        graph, most = self.graph, relative.max_distance
        # All distances from the largest on share one row, so these are all possible rows.
        rows = relative.rows(torch.arange(-most, most + 1)).numpy()
        near = graph.op("Clip", graph.op("Sub", *self._pairs()), np.int64(-most), np.int64(most))
        row = graph.op("Gather", rows, graph.op("Add", near, np.int64(most)))
        gathered = graph.op("Gather", relative.weight, row)  # [T, P + T, H]
        return graph.op("Unsqueeze", graph.op("Transpose", gathered, perm=[2, 0, 1]), np.array([0]))

    def before(self, x: str, residual: Any) -> str:
        """Return the input of a sub-layer: x, after the norm in a pre-norm model."""
        return self.graph.norm(x, residual.norm) if residual.is_pre else x

    def after(self, x: str, y: str, residual: Any) -> str:
        """Return x + y for the sub-layer output y, after the norm in a post-norm model."""
        both = self.graph.op("Add", x, y)
        return both if residual.is_pre else self.graph.norm(both, residual.norm)

    def keys_and_values(self, x: str, attention: Any, heads: str) -> list[str]:
        """Return the keys and values [B, H, S, K or V] of attended states; `heads` is the shape from `_heads`."""
        keys, values = (self._split(x, projection, heads) for projection in (attention.k_proj, attention.v_proj))
        return [self._turned(keys) if attention.rotary is not None else keys, values]

    def attended(self, x: str, attention: Any, keys_and_values: list[str], mask: str, bias: str | None = None) -> str:
        """Return multi-head attention (equation 1), joined and projected [N, D].

        `mask` is True where a query may attend.
        """
        graph, config, (keys, values) = self.graph, self.config, keys_and_values
        q = self._split(x, attention.q_proj, self.heads)
        if attention.rotary is not None:
            q = self._turned(q)
        if config.attention_scale:
            q = graph.op("Div", q, np.float32(math.sqrt(config.key_dim)))
        scores = graph.op("MatMul", q, graph.op("Transpose", keys, perm=[0, 1, 3, 2]))  # [B, H, T, S]
        if bias is not None:
            scores = graph.op("Add", scores, bias)
        # The smallest float, not minus infinity: for a source without tokens the softmax would return NaN.
        weights = graph.op("Softmax", graph.op("Where", mask, scores, np.finfo(np.float32).min))
        heads = graph.op("Transpose", graph.op("MatMul", weights, values), perm=[0, 2, 1, 3])
        joined = graph.op("Reshape", heads, np.array([-1, config.num_heads * config.value_dim]))
        return graph.linear(joined, attention.out_proj)

    def fed_forward(self, x: str, layer: Any) -> str:
        """Return the output of the feed-forward network (equation 2) and its residual connection."""
        graph, network = self.graph, layer.feed_forward
        y = self.before(x, layer.feed_forward_residual)
        hidden = graph.linear(y, network.up_proj)
        if network.gate_proj is None:
            hidden = self.activated(hidden)
        else:
            hidden = graph.op("Mul", self.activated(graph.linear(y, network.gate_proj)), hidden)
        return self.after(x, graph.linear(hidden, network.down_proj), layer.feed_forward_residual)

    def activated(self, x: str) -> str:
        """Return x after the model's activation function."""
        match self.config.activation:
            case "relu":
                return self.graph.op("Relu", x)
            case "gelu":
                return self.graph.op("Gelu", x)
            case "gelu_tanh":
                return self.graph.op("Gelu", x, approximate="tanh")
            case "silu":
                return self.graph.op("Mul", x, self.graph.op("Sigmoid", x))
            case unknown:
                assert_never(unknown)

    def unfolded(self, x: str, width: int) -> str:
        """Return rows [N, width] as [B, T, width]."""
        shape = self.graph.op("Concat", self.graph.op("Shape", self.ids), np.array([width]), axis=0)
        return self.graph.op("Reshape", x, shape)

    def _split(self, x: str, projection: Any, heads: str) -> str:
        split = self.graph.op("Reshape", self.graph.linear(x, projection), heads)
        return self.graph.op("Transpose", split, perm=[0, 2, 1, 3])  # [B, H, T, K or V]

    def _pairs(self) -> tuple[str, str]:
        """Return the positions of keys [P + T] and of queries [T, 1]."""
        keys = self.graph.op("Range", np.int64(0), self.end, np.int64(1))
        return keys, self.graph.op("Unsqueeze", self.positions, np.array([1]))

    def _sinusoids(self, positions: Any) -> str:
        """Return the sinusoids of `sinusoidal_positions` [T, D]; a cosine is a sine a quarter turn ahead."""
        frequency, ahead = (
            wave_frequencies(self.config.d_model, positions.layout),
            np.array([0.0, QUARTER_TURN]),
        )
        if positions.layout == "sinusoidal":
            ahead, frequency = np.tile(ahead, len(frequency)), np.repeat(frequency, 2)
        else:
            ahead, frequency = np.repeat(ahead, len(frequency)), np.tile(frequency, 2)
        return self._sines(frequency, ahead + positions.first * frequency)

    def _turned(self, x: str) -> str:
        """Return queries or keys [B, H, T, K] rotated by their positions, as in `rotary_positions`."""
        graph, width = self.graph, self.config.key_dim
        frequency = np.repeat(wave_frequencies(width), 2)
        # left cos - right sin, right cos + left sin: each component, and the other one of its pair.
        cosines = self._sines(frequency, np.full(width, QUARTER_TURN))
        sines = self._sines(frequency, np.tile([2 * QUARTER_TURN, 0.0], width // 2))  # -sin is sin half a turn ahead
        others = graph.op("Gather", x, np.arange(width) ^ 1, axis=3)
        return graph.op("Add", graph.op("Mul", x, cosines), graph.op("Mul", others, sines))

    def _sines(self, frequency: np.ndarray, ahead: np.ndarray) -> str:
        """Return sines of angles in radians that grow with the position [T, ..].

        They are computed in float64, for the reason in `positions.py`.
        """
        graph = self.graph
        column = graph.op("Unsqueeze", graph.op("Cast", self.positions, to=DOUBLE), np.array([1]))
        angle = graph.op("Add", graph.op("Mul", column, frequency), ahead)
        return graph.op("Cast", graph.op("Sin", angle), to=FLOAT)


def _source_mask(graph: Graph, name: str) -> str:
    """Return which source positions may be attended to [B, 1, 1, S]."""
    mask = graph.op("Cast", graph.input(name, INT64, BATCH, SOURCE), to=TensorProto.BOOL)
    return graph.op("Unsqueeze", mask, np.array([1, 2]))


def _heads(graph: Graph, config: ModelConfig, x: str) -> str:
    """Return the shape [B, T, H, -1] that splits rows of x [B, T, ..] into heads."""
    return graph.op("Concat", graph.op("Shape", x, end=2), np.array([config.num_heads, -1]), axis=0)


def _kept(config: ModelConfig, number: int, side: str, length: str) -> list[tuple[str, Shape]]:
    """Return names and shapes of a layer's cached keys and values.

    `side` is "decoder" for target positions and "encoder" for source positions.
    """
    widths = (("key", config.key_dim), ("value", config.value_dim))
    return [(f"{number}.{side}.{kind}", (BATCH, config.num_heads, length, width)) for kind, width in widths]
