"""The whole forward pass of the paper in slow float64 loops, one sentence and one number at a time.

Written from the paper's sections 3.1 to 3.5 and from the names of the weights alone; it shares no code with the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["NumpyTransformer", "positional_encoding"]

Array = NDArray[np.float64]


def positional_encoding(position: int, d_model: int) -> Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same (section 3.5)."""
    encoding = np.zeros(d_model)
    for i in range(d_model // 2):
        angle = position / 10_000 ** (2 * i / d_model)
        encoding[2 * i] = math.sin(angle)
        encoding[2 * i + 1] = math.cos(angle)
    return encoding


class NumpyTransformer:
    """The model of figure 1, reading one sentence pair at a time.

    Args:
        weights: Name to array, as the model's state dict names them; matrices map columns to rows (W x).
        num_encoder_layers: N on the left of figure 1.
        num_decoder_layers: N on the right.
        num_heads: h in the paper.
        norm: `post` as printed, or `pre` with a norm after the last layer.
        pad_id: Source id that no query may see.
        position_dtype: Precision the encodings are rounded to before they are added.
    """

    def __init__(
        self,
        weights: Mapping[str, Array],
        *,
        num_encoder_layers: int,
        num_decoder_layers: int,
        num_heads: int,
        norm: Literal["post", "pre"],
        pad_id: int,
        position_dtype: type[np.floating] = np.float64,
    ) -> None:
        self.weights = {name: np.asarray(array, dtype=np.float64) for name, array in weights.items()}
        self.num_encoder_layers = num_encoder_layers
        self.num_decoder_layers = num_decoder_layers
        self.num_heads = num_heads
        self.norm = norm
        self.pad_id = pad_id
        self.position_dtype = position_dtype
        self.read: set[str] = set()

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Array:
        """Return one row of scores for each target position."""
        memory = self.encode(source)
        visible = [token != self.pad_id for token in source]
        states = [self.embed(token, position) for position, token in enumerate(target)]
        for number in range(self.num_decoder_layers):
            layer = f"decoder.layers.{number}"
            # A position sees itself and what stands before it (section 3.2.3).
            states = self.attention_sublayer(
                layer, "self_attn", states, None, lambda t, s: s <= t, num_keys=len(target)
            )
            states = self.attention_sublayer(
                layer, "cross_attn", states, memory, lambda t, s: visible[s], num_keys=len(source)
            )
            states = self.feed_forward_sublayer(layer, states)
        states = self.finish("decoder", states)
        embedding = self.weight("embedding.weight")
        return np.array([[embedding[token] @ state for token in range(len(embedding))] for state in states])

    def encode(self, source: Sequence[int]) -> list[Array]:
        """Return one state for each source position, padding included."""
        visible = [token != self.pad_id for token in source]
        states = [self.embed(token, position) for position, token in enumerate(source)]
        for number in range(self.num_encoder_layers):
            layer = f"encoder.layers.{number}"
            states = self.attention_sublayer(
                layer, "self_attn", states, None, lambda t, s: visible[s], num_keys=len(source)
            )
            states = self.feed_forward_sublayer(layer, states)
        return self.finish("encoder", states)

    def weight(self, name: str) -> Array:
        """Return a weight and remember that it was read."""
        self.read.add(name)
        return self.weights[name]

    def embed(self, token: int, position: int) -> Array:
        """The token's row times sqrt(d_model), plus its position (sections 3.4 and 3.5)."""
        row = self.weight("embedding.weight")[token]
        encoding = positional_encoding(position, len(row)).astype(self.position_dtype).astype(np.float64)
        return row * math.sqrt(len(row)) + encoding

    def attention_sublayer(self, layer, name, states, memory, may_attend, *, num_keys):  # type: ignore[no-untyped-def]
        """Residual connection around multi-head attention; `memory` None is self-attention."""
        inputs = self.before(f"{layer}.{name}_residual.norm", states)
        attended = inputs if memory is None else memory
        assert len(attended) == num_keys
        updates = self.multi_head_attention(f"{layer}.{name}", inputs, attended, may_attend)
        return self.after(f"{layer}.{name}_residual.norm", states, updates)

    def multi_head_attention(self, name, queries, memory, may_attend):  # type: ignore[no-untyped-def]
        """Concat(head_1, ..., head_h) W^O, each head over its own slice of the projections (section 3.2.2)."""
        projected_q = [self.weight(f"{name}.q_proj.weight") @ x for x in queries]
        projected_k = [self.weight(f"{name}.k_proj.weight") @ x for x in memory]
        projected_v = [self.weight(f"{name}.v_proj.weight") @ x for x in memory]
        width = len(projected_q[0]) // self.num_heads
        outputs = []
        for t, query in enumerate(projected_q):
            heads = []
            for head in range(self.num_heads):
                part = slice(head * width, (head + 1) * width)
                keys = [s for s in range(len(memory)) if may_attend(t, s)]
                scores = [float(query[part] @ projected_k[s][part]) / math.sqrt(width) for s in keys]
                exponentials = [math.exp(score - max(scores)) for score in scores]
                mixed = np.zeros(width)
                for s, exponential in zip(keys, exponentials, strict=True):
                    mixed += exponential / sum(exponentials) * projected_v[s][part]
                heads.append(mixed)
            outputs.append(self.weight(f"{name}.out_proj.weight") @ np.concatenate(heads))
        return outputs

    def feed_forward_sublayer(self, layer: str, states: list[Array]) -> list[Array]:
        """Residual connection around max(0, x W1 + b1) W2 + b2 (section 3.3)."""
        inputs = self.before(f"{layer}.feed_forward_residual.norm", states)
        name = f"{layer}.feed_forward"
        updates = []
        for x in inputs:
            hidden = self.weight(f"{name}.up_proj.weight") @ x + self.weight(f"{name}.up_proj.bias")
            hidden = np.array([max(0.0, value) for value in hidden])
            updates.append(self.weight(f"{name}.down_proj.weight") @ hidden + self.weight(f"{name}.down_proj.bias"))
        return self.after(f"{layer}.feed_forward_residual.norm", states, updates)

    def before(self, norm: str, states: list[Array]) -> list[Array]:
        """What a sub-layer reads."""
        return [self.layer_norm(norm, x) for x in states] if self.norm == "pre" else states

    def after(self, norm: str, states: list[Array], updates: list[Array]) -> list[Array]:
        """LayerNorm(x + Sublayer(x)) as printed (section 3.1), or the bare sum if the norm stood before."""
        sums = [x + update for x, update in zip(states, updates, strict=True)]
        return sums if self.norm == "pre" else [self.layer_norm(norm, x) for x in sums]

    def finish(self, stack: str, states: list[Array]) -> list[Array]:
        """The paper has no norm after the last layer; pre-norm needs one."""
        return [self.layer_norm(f"{stack}.final_norm", x) for x in states] if self.norm == "pre" else states

    def layer_norm(self, name: str, x: Array) -> Array:
        """Mean 0 and variance 1 over the features, then gain and bias; 1e-5 under the root."""
        mean = sum(x) / len(x)
        variance = sum((value - mean) ** 2 for value in x) / len(x)
        return (x - mean) / math.sqrt(variance + 1e-5) * self.weight(f"{name}.weight") + self.weight(f"{name}.bias")
