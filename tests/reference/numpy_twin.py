"""The forward pass of the whole family in slow float64 loops, one sentence, one position and one head at a time.

Written from the papers and from the names of the weights alone; it shares no code with the model:
"Attention Is All You Need" sections 3.1 to 3.5, Ba et al. 2016 (layer norm), Zhang and Sennrich 2019 (RMS norm),
Hendrycks and Gimpel 2016 (GELU, SiLU), Shazeer 2020 (gates), Su et al. 2021 (rotary positions), Raffel et al. 2020
(relative positions, scores that are not divided), Devlin et al. 2019 (segments, a norm over the embeddings).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NumpyTransformer", "activate", "positional_encoding", "relative_row", "turn"]

Array = NDArray[np.float64]
MayAttend = Callable[[int, int], bool]

EMBEDDINGS_AND_OUTPUT = ("source_embedding.weight", "target_embedding.weight", "output_proj.weight")


def positional_encoding(position: int, d_model: int, layout: str = "sinusoidal") -> Array:
    """The sinusoid of a position.

    `sinusoidal` is section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same.
    `sinusoidal_halves` has all sines first; `sinusoidal_t2t` as well, with 10000^(i / (d_model / 2 - 1)).
    """
    encoding = np.zeros(d_model)
    half = d_model // 2
    for i in range(half):
        exponent = i / max(half - 1, 1) if layout == "sinusoidal_t2t" else 2 * i / d_model
        angle = position / 10_000**exponent
        sine, cosine = (2 * i, 2 * i + 1) if layout == "sinusoidal" else (i, half + i)
        encoding[sine] = math.sin(angle)
        encoding[cosine] = math.cos(angle)
    return encoding


def turn(x: Array, position: int) -> Array:
    """R x of Su et al. 2021, equation 34: components 2i - 1 and 2i turn by position * 10000^(-2(i - 1) / d)."""
    turned = np.zeros(len(x))
    for i in range(1, len(x) // 2 + 1):
        angle = position * 10_000 ** (-2 * (i - 1) / len(x))
        first, second = x[2 * i - 2], x[2 * i - 1]
        turned[2 * i - 2] = first * math.cos(angle) - second * math.sin(angle)
        turned[2 * i - 1] = second * math.cos(angle) + first * math.sin(angle)
    return turned


def relative_row(distance: int, num_rows: int, max_distance: int, *, is_causal: bool) -> int:
    """The row of a distance (key less query) in a table of relative positions, in whole numbers alone.

    Of n rows of one direction the first s = n / 2 are for one distance each. Any other distance has the last row that
    begins at or before it: row s + k begins at s * (max_distance / s)^(k / (n - s)).
    """
    if is_causal:
        num, first, far = num_rows, 0, max(-distance, 0)
    else:
        num = num_rows // 2
        first, far = (num if distance > 0 else 0), abs(distance)
    single = num // 2
    if far < single:
        return first + far
    ranges = num - single
    begun = [k for k in range(ranges) if far**ranges * single**k >= max_distance**k * single**ranges]
    return first + single + begun[-1]


def activate(kind: str, x: float) -> float:
    """Replacement for max(0, x) of equation 2."""
    match kind:
        case "relu":
            return max(0.0, x)
        case "gelu":  # x times the probability that a standard normal variable lies below x
            return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))
        case "gelu_tanh":
            return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        case "silu":
            return x / (1 + math.exp(-x))
    raise AssertionError(kind)


class NumpyTransformer:
    """The model of figure 1 or one side of it, reading one sentence pair at a time.

    Args:
        weights: Name to array, a shared matrix once, under its first name; matrices map columns to rows (W x).
        settings: The settings by their public names; what `None` means is worked out here.
        position_dtype: Precision that sinusoids are rounded to before they are added.
    """

    def __init__(
        self,
        weights: Mapping[str, Array],
        settings: Mapping[str, Any],
        *,
        position_dtype: type[np.floating] = np.float64,
    ) -> None:
        self.weights = {name: np.asarray(array, dtype=np.float64) for name, array in weights.items()}
        self.settings = settings
        self.position_dtype = position_dtype
        self.read: set[str] = set()

    def logits(
        self, source: Sequence[int] | None, target: Sequence[int], segments: Sequence[int] | None = None
    ) -> Array:
        """Return one row of scores for each target position."""
        memory = None if source is None else self.encode(source, segments)
        states = [self.embed("target", token, position) for position, token in enumerate(target)]
        for number in range(self.settings["num_decoder_layers"]):
            layer = f"decoder.layers.{number}"
            # A position sees itself and earlier positions (section 3.2.3).
            states = self.attention_sublayer(layer, "self_attn", states, None, lambda t, s: s <= t)
            if source is not None:
                visible = [token != self.settings["pad_id"] for token in source]
                states = self.attention_sublayer(layer, "cross_attn", states, memory, lambda t, s: visible[s])  # noqa: B023
            states = self.feed_forward_sublayer(layer, states)
        matrix = self.weight(self.owner("output_proj.weight"))
        factor = 1 / math.sqrt(self.settings["d_model"]) if self.settings["output_scale"] else 1.0
        states = [self.output_transform(state) for state in self.finish("decoder", states)]
        scores = np.array([matrix @ (factor * state) for state in states])
        return scores + self.weight("output_proj.bias") if self.settings["output_bias"] else scores

    def encode(self, source: Sequence[int], segments: Sequence[int] | None = None) -> list[Array]:
        """Return one state for each source position, padding included."""
        visible = [token != self.settings["pad_id"] for token in source]
        segments = segments or [0] * len(source)
        states = [
            self.embed("source", token, position, segment)
            for position, (token, segment) in enumerate(zip(source, segments, strict=True))
        ]
        for number in range(self.settings["num_encoder_layers"]):
            layer = f"encoder.layers.{number}"
            states = self.attention_sublayer(layer, "self_attn", states, None, lambda t, s: visible[s])
            states = self.feed_forward_sublayer(layer, states)
        return self.finish("encoder", states)

    def output_transform(self, state: Array) -> Array:
        """BERT's layer before the output matrix: an activation of W x + b, and a norm."""
        if not self.settings["output_transform"]:
            return state
        hidden = self.linear("output_transform.proj", state, bias=True)
        return self.norm("output_transform.norm", np.array([activate(self.settings["activation"], x) for x in hidden]))

    def weight(self, name: str) -> Array:
        """Return a weight and remember that it was read."""
        self.read.add(name)
        return self.weights[name]

    def linear(self, name: str, x: Array, *, bias: bool) -> Array:
        """W x, or W x + b."""
        product = self.weight(f"{name}.weight") @ x
        return product + self.weight(f"{name}.bias") if bias else product

    def owner(self, name: str) -> str:
        """The name that a matrix of section 3.4 is stored under: that of the first it is shared with."""
        source, target, output = EMBEDDINGS_AND_OUTPUT
        shared = {
            "three-way": [source, target, output],
            "decoder": [target, output],
            "embeddings": [source, target],
            "none": [],
        }[self.settings["tying"]]
        absent = []
        if self.settings["num_encoder_layers"] == 0:
            absent = [source]
        if self.settings["num_decoder_layers"] == 0:
            absent = [target, output]
        return next(other for other in shared if other not in absent) if name in shared else name

    def embed(self, side: str, token: int, position: int, segment: int = 0) -> Array:
        """The token's row times sqrt(d_model), plus its position (sections 3.4 and 3.5), plus its segment."""
        part = f"{side}_embedding"
        x = self.weight(self.owner(f"{part}.weight"))[token]
        width, kind = len(x), self.settings["positions"]
        if self.settings["embedding_scale"]:
            x = x * math.sqrt(width)
        if kind == "learned":
            x = x + self.weight(f"{part}.positions.weight")[position]
        elif kind not in ("rotary", "relative", "none"):
            encoding = positional_encoding(position + self.settings["first_position"], width, kind)
            x = x + encoding.astype(self.position_dtype).astype(np.float64)
        if self.settings["num_segments"] and part == "source_embedding":
            x = x + self.weight(f"{part}.segments.weight")[segment]
        if self.settings["num_target_segments"] and part == "target_embedding":
            x = x + self.weight(f"{part}.segments.weight")[0]
        return self.norm(f"{part}.norm", x) if self.settings["embedding_norm"] else x

    def attention_sublayer(
        self, layer: str, name: str, states: list[Array], memory: list[Array] | None, may_attend: MayAttend
    ) -> list[Array]:
        """Residual connection around multi-head attention; `memory` None is self-attention."""
        inputs = self.before(f"{layer}.{name}_residual.norm", states)
        positions = self.settings["positions"] if memory is None else "none"
        attended = inputs if memory is None else memory
        updates = self.multi_head_attention(f"{layer}.{name}", inputs, attended, may_attend, positions)
        return self.after(f"{layer}.{name}_residual.norm", states, updates)

    def multi_head_attention(
        self, name: str, queries: list[Array], memory: list[Array], may_attend: MayAttend, positions: str
    ) -> list[Array]:
        """Concat(head_1, ..., head_h) W^O, each head over its own slice of the projections (section 3.2.2)."""
        num_heads, bias = self.settings["num_heads"], self.settings["attention_bias"]
        d_k = self.settings["d_k"] or self.settings["d_model"] // num_heads
        d_v = self.settings["d_v"] or self.settings["d_model"] // num_heads
        projected_q = [self.linear(f"{name}.q_proj", x, bias=bias) for x in queries]
        projected_k = [self.linear(f"{name}.k_proj", x, bias=bias) for x in memory]
        projected_v = [self.linear(f"{name}.v_proj", x, bias=bias) for x in memory]
        assert (len(projected_q[0]), len(projected_v[0])) == (num_heads * d_k, num_heads * d_v)
        concatenated = [np.zeros(num_heads * d_v) for _ in queries]
        for head in range(num_heads):
            part = slice(head * d_k, (head + 1) * d_k)
            values = [v[head * d_v : (head + 1) * d_v] for v in projected_v]
            head_q, head_k = [q[part] for q in projected_q], [k[part] for k in projected_k]
            if positions == "rotary":
                head_q = [turn(q, position) for position, q in enumerate(head_q)]
                head_k = [turn(k, position) for position, k in enumerate(head_k)]
            for t, query in enumerate(head_q):
                keys = [s for s in range(len(memory)) if may_attend(t, s)]
                divisor = math.sqrt(d_k) if self.settings["attention_scale"] else 1.0
                scores = [float(query @ head_k[s]) / divisor for s in keys]
                if positions == "relative":
                    scores = [score + self.relative(name, head, s - t) for score, s in zip(scores, keys, strict=True)]
                largest = max(scores)
                exponentials = [math.exp(score - largest) for score in scores]
                total = sum(exponentials)
                for s, exponential in zip(keys, exponentials, strict=True):
                    concatenated[t][head * d_v : (head + 1) * d_v] += exponential / total * values[s]
        return [self.linear(f"{name}.out_proj", x, bias=bias) for x in concatenated]

    def relative(self, name: str, head: int, distance: int) -> float:
        """What the distance of a key adds to its score; a stack has one table for all its layers."""
        stack = name.partition(".")[0]
        rows, farthest = (self.settings[f"relative_attention_{name}"] for name in ("num_buckets", "max_distance"))
        row = relative_row(distance, rows, farthest, is_causal=stack == "decoder")
        return float(self.weight(f"{stack}.relative_positions.weight")[row, head])

    def feed_forward_sublayer(self, layer: str, states: list[Array]) -> list[Array]:
        """Residual connection around max(0, x W1 + b1) W2 + b2 (section 3.3) and its kin."""
        inputs = self.before(f"{layer}.feed_forward_residual.norm", states)
        name, kind, bias = f"{layer}.feed_forward", self.settings["activation"], self.settings["feed_forward_bias"]
        updates = []
        for x in inputs:
            hidden = self.linear(f"{name}.up_proj", x, bias=bias)
            if self.settings["gated"]:
                gate = self.linear(f"{name}.gate_proj", x, bias=bias)
                hidden = np.array([activate(kind, g) * value for g, value in zip(gate, hidden, strict=True)])
            else:
                hidden = np.array([activate(kind, value) for value in hidden])
            updates.append(self.linear(f"{name}.down_proj", hidden, bias=bias))
        return self.after(f"{layer}.feed_forward_residual.norm", states, updates)

    def before(self, norm: str, states: list[Array]) -> list[Array]:
        """What a sub-layer reads."""
        return [self.norm(norm, x) for x in states] if self.settings["norm"] == "pre" else states

    def after(self, norm: str, states: list[Array], updates: list[Array]) -> list[Array]:
        """LayerNorm(x + Sublayer(x)) as printed (section 3.1), or the bare sum if the norm stood before."""
        sums = [x + update for x, update in zip(states, updates, strict=True)]
        return sums if self.settings["norm"] == "pre" else [self.norm(norm, x) for x in sums]

    def finish(self, stack: str, states: list[Array]) -> list[Array]:
        """The paper has no norm after the last layer; pre-norm needs one; both may be overruled."""
        wanted = self.settings["final_norm"]
        if wanted is None:
            wanted = self.settings["norm"] == "pre"
        return [self.norm(f"{stack}.final_norm", x) for x in states] if wanted else states

    def norm(self, name: str, x: Array) -> Array:
        """`layer`: mean 0 and variance 1 over the features, then gain and bias; `rms`: mean square 1, then gain."""
        eps = self.settings["norm_eps"]
        if self.settings["norm_kind"] == "rms":
            return x / math.sqrt(sum(value**2 for value in x) / len(x) + eps) * self.weight(f"{name}.weight")
        mean = sum(x) / len(x)
        variance = sum((value - mean) ** 2 for value in x) / len(x)
        return (x - mean) / math.sqrt(variance + eps) * self.weight(f"{name}.weight") + self.weight(f"{name}.bias")
