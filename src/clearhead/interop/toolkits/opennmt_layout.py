"""Key table and setting names of OpenNMT-py's and eole's Transformer: pre-norm, final norms, optional biases.

Tensor names follow their public sources (OpenNMT-py 2.3 and 3.5: encoders, decoders and modules; eole 0.6). The
toolkits cannot be installed beside clearhead. A missing bias of the attention output means zeros; eole's encoders
never have this bias.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.choices import NormKind, PositionKind, Tying
from clearhead.interop.key_table import TYINGS, Computed, KeyRow, KeyTable, LeftOut, embedding_rows, numbered, pair
from clearhead.interop.readers.foreign_config import TheirConfig
from clearhead.interop.rewrites import resolved
from clearhead.interop.toolkits.shared import stored_positions

T = TypeVar("T")

ACTIVATIONS: Mapping[object, tuple[str, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu-tanh": ("gelu_tanh", False),
    "silu": ("silu", False),
    "gated-gelu": ("gelu", True),
    "gated-gelu-tanh": ("gelu_tanh", True),
    "gated-silu": ("silu", True),
}
"""Their names of activations to ours, and whether the feed-forward network is gated."""

POSITIONS: Mapping[object, PositionKind] = {
    "SinusoidalInterleaved": "sinusoidal",
    "SinusoidalConcat": "sinusoidal_t2t",
    "Learned": "learned",
    None: "none",
}
"""Their names of position encodings to ours."""


NORMS: Mapping[object, NormKind] = {"standard": "layer", "standardFP32": "layer", "rms": "rms"}
"""Their names of norms to ours."""

SEARCH: Mapping[str, Any] = {"beam_size": 5, "length_penalty": 1.0, "length_penalty_form": "power"}
"""Default search settings of the toolkits (`-beam_size 5 -length_penalty avg`); models do not store any."""


@dataclass(frozen=True)
class Names:
    """Names of the modules in a toolkit."""

    source: str
    """Source embedding."""
    target: str
    encoder_layers: str
    encoder_norm: str
    """Norm before the attention of an encoder layer."""
    decoder_norm: str
    cross_norm: str
    feed_forward_norm: str
    inner: str
    """First projection of the feed-forward network; the gate projection if the network is gated."""
    gated: str
    """Projection that the gate multiplies."""
    outer: str
    """Second projection."""


OPENNMT_PY = Names(
    source="encoder.embeddings.make_embedding.emb_luts.0",
    target="decoder.embeddings.make_embedding.emb_luts.0",
    encoder_layers="encoder.transformer",
    encoder_norm="layer_norm",
    decoder_norm="layer_norm_1",
    cross_norm="layer_norm_2",
    feed_forward_norm="feed_forward.layer_norm",
    inner="feed_forward.w_1",
    gated="feed_forward.w_3",
    outer="feed_forward.w_2",
)

EOLE = Names(
    source="src_emb.embeddings",
    target="tgt_emb.embeddings",
    encoder_layers="encoder.transformer_layers",
    encoder_norm="input_layernorm",
    decoder_norm="input_layernorm",
    cross_norm="precontext_layernorm",
    feed_forward_norm="post_attention_layernorm",
    inner="mlp.gate_up_proj",
    gated="mlp.up_proj",
    outer="mlp.down_proj",
)


def chosen(their: TheirConfig, field: str, known: Mapping[object, T]) -> T | None:
    """Return our counterpart of a field's value; record a problem and return None if the value is unknown."""
    value = their[field]
    if not isinstance(value, Hashable) or value not in known:
        their.problems.append(f"{field} is {value!r:.60}; those we have: {', '.join(map(str, known))}")
        return None
    return known[value]


def tying(values: Mapping[str, Any]) -> Tying:
    """Return which embedding and output matrices are tied."""
    return TYINGS[bool(values.get("share_embeddings")), bool(values.get("share_decoder_embeddings"))]


def bias_settings(state: Mapping[str, Tensor], names: Names) -> dict[str, bool]:
    """Return our bias settings from the biases in a file, which the toolkits partly do as well."""
    return {
        "attention_bias": any(name.endswith(".linear_query.bias") for name in state),
        "feed_forward_bias": any(name.endswith(f".{names.inner}.bias") for name in state),
        "output_bias": "generator.bias" in state,
    }


def key_table(config: ModelConfig, names: Names) -> KeyTable:
    """Return the key table of a model, including the generator."""
    config = resolved(config)
    rows = embedding_rows(config.tying, f"{names.source}.weight", f"{names.target}.weight", "generator.weight")
    if config.output_bias:
        rows.append(KeyRow(("output_proj.bias",), "generator.bias"))
    if config.positions == "learned":
        for ours, theirs in (("source", names.source), ("target", names.target)):
            rows.append(KeyRow((f"{ours}_embedding.positions.weight",), f"{theirs.split('.')[0]}.pe.weight"))
    network = _feed_forward(config, names)
    decoder = [
        *_attention(config, "self_attn", "self_attn"),
        *_norm(config, "self_attn_residual.norm", names.decoder_norm),
        *_attention(config, "cross_attn", "context_attn"),
        *_norm(config, "cross_attn_residual.norm", names.cross_norm),
        *network,
    ]
    encoder = [
        *_attention(config, "self_attn", "self_attn"),
        *_norm(config, "self_attn_residual.norm", names.encoder_norm),
        *network,
    ]
    for side, layer, count, theirs in (
        ("encoder", encoder, config.num_encoder_layers, names.encoder_layers),
        ("decoder", decoder, config.num_decoder_layers, "decoder.transformer_layers"),
    ):
        rows += numbered(layer, count, ours=f"{side}.layers.{{i}}.", theirs=f"{theirs}.{{i}}.")
        rows += _norm(config, f"{side}.final_norm", f"{side}.layer_norm")
    ones = Computed(torch.ones, 1)
    scale = LeftOut("decoder.transformer_layers.*.layer_scalar", "scales nothing in such models", ones)
    return KeyTable(tuple(rows), (*stored_positions(config), scale))


def _attention(config: ModelConfig, ours: str, theirs: str) -> list[KeyRow]:
    names = {"q_proj": "linear_query", "k_proj": "linear_keys", "v_proj": "linear_values", "out_proj": "final_linear"}
    rows = [row for name, there in names.items() for row in pair(f"{ours}.{name}", f"{theirs}.{there}")]
    if not config.attention_bias:
        return [row for row in rows if not row.theirs.endswith(".bias")]
    return [replace(row, zeros=(config.d_model,)) if row.theirs.endswith("final_linear.bias") else row for row in rows]


def _feed_forward(config: ModelConfig, names: Names) -> list[KeyRow]:
    there = {"gate_proj": names.inner, "up_proj": names.gated} if config.gated else {"up_proj": names.inner}
    rows = [
        row
        for name, theirs in {**there, "down_proj": names.outer}.items()
        for row in pair(f"feed_forward.{name}", theirs)
        if config.feed_forward_bias or not row.theirs.endswith(".bias")
    ]
    return rows + _norm(config, "feed_forward_residual.norm", names.feed_forward_norm)


def _norm(config: ModelConfig, ours: str, theirs: str) -> list[KeyRow]:
    return pair(ours, theirs)[: {"layer": 2, "rms": 1}[config.norm_kind]]
