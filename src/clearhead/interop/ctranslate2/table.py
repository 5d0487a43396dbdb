"""Key table of CTranslate2's Transformer, where projections of the same input share one matrix."""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.config import ModelConfig
from clearhead.config.known import COMMON, POSITIONS, Known
from clearhead.interop.ctranslate2.attention import BIAS
from clearhead.interop.key_table import SAME, STACKED, KeyRow, KeyTable, embedding_rows, numbered
from clearhead.interop.rewrites import resolved

ACTIVATIONS = {"relu": "RELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "gelu": "GELU"}
"""Our names of activations to CTranslate2's, in the order of CTranslate2's numbers from 0."""

EXPRESSIBLE: Known = {
    **COMMON,
    "num_segments": (0,),
    "activation": tuple(ACTIVATIONS),
    "positions": (*POSITIONS, "relative"),
}
"""The settings that CTranslate2's Transformer has, and this table and the writer write."""

SOURCE, TARGET, OUTPUT = "encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight"


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of an encoder-decoder with these settings.

    It includes position tables only if they are learned. Computed positions have a table in CTranslate2, but no row.
    """
    config = resolved(config)
    rows = embedding_rows(config.tying, SOURCE, TARGET, OUTPUT)
    if config.output_bias:
        rows.append(KeyRow(("output_proj.bias",), "decoder/projection/bias"))
    layer = [*_attention(config, "self_attn", "self_attention", ("qkv", "o")), *_feed_forward(config)]
    cross = _attention(config, "cross_attn", "attention", ("q", "kv", "o"))
    for side, embedding, parts, count in (
        ("encoder", "source_embedding", layer, config.num_encoder_layers),
        ("decoder", "target_embedding", [*layer, *cross], config.num_decoder_layers),
    ):
        rows += numbered(parts, count, ours=f"{side}.layers.{{i}}.", theirs=f"{side}/layer_{{i}}/")
        if config.final_norm:
            rows += _norm(config, f"{side}.final_norm", f"{side}/layer_norm")
        if config.embedding_norm:
            rows += _norm(config, f"{embedding}.norm", f"{side}/layernorm_embedding")
        if config.positions == "learned":
            rows.append(KeyRow((f"{embedding}.positions.weight",), f"{side}/position_encodings/encodings"))
        if config.positions == "relative" and count:
            first, *others = (f"{side}/layer_{number}/self_attention/{BIAS}" for number in range(count))
            rows.append(KeyRow((f"{side}.relative_positions.weight",), first, also=tuple(others)))
    return KeyTable(tuple(rows))


def _attention(config: ModelConfig, ours: str, theirs: str, fused: Sequence[str]) -> list[KeyRow]:
    rows = _norm(config, f"{ours}_residual.norm", f"{theirs}/layer_norm")
    for number, parts in enumerate(fused):
        names = [f"{ours}.{'out' if part == 'o' else part}_proj" for part in parts]
        size = config.d_model if parts == "o" else config.num_heads * config.key_dim
        rows += _linear(names, f"{theirs}/linear_{number}", size, has_bias=config.attention_bias)
    return rows


def _feed_forward(config: ModelConfig) -> list[KeyRow]:
    names = {"up_proj": "linear_0", "down_proj": "linear_1"}
    if config.gated:  # the gate has the activation
        names = {"gate_proj": "linear_0", "up_proj": "linear_0_noact", "down_proj": "linear_1"}
    rows = _norm(config, "feed_forward_residual.norm", "ffn/layer_norm")
    for ours, theirs in names.items():
        size = config.d_model if ours == "down_proj" else config.d_ff
        rows += _linear([f"feed_forward.{ours}"], f"ffn/{theirs}", size, has_bias=config.feed_forward_bias)
    return rows


def _linear(ours: Sequence[str], theirs: str, size: int, *, has_bias: bool) -> list[KeyRow]:
    """Return the rows of our linear maps, stacked into one of CTranslate2's; a bias missing in a file is zero."""
    layout = SAME if len(ours) == 1 else STACKED
    rows = [KeyRow(tuple(f"{name}.weight" for name in ours), f"{theirs}/weight", layout)]
    if has_bias:
        zeros = (size * len(ours),)
        rows.append(KeyRow(tuple(f"{name}.bias" for name in ours), f"{theirs}/bias", layout, zeros=zeros))
    return rows


def _norm(config: ModelConfig, ours: str, theirs: str) -> list[KeyRow]:
    rows = [KeyRow((f"{ours}.weight",), f"{theirs}/gamma"), KeyRow((f"{ours}.bias",), f"{theirs}/beta")]
    return rows[: {"layer": 2, "rms": 1}[config.norm_kind]]
