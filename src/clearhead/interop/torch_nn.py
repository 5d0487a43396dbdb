"""Key tables of torch.nn's attention, layers and stacks, and import of an nn.Transformer's state dict.

Attention in torch.nn always has biases, so ours needs `attention_bias`. nn.Transformer ends both stacks with a norm,
our `final_norm=True`; it has no embeddings, positions or output.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.interop.key_table import STACKED, KeyRow, KeyTable, numbered, pair
from clearhead.interop.rewrites import resolved


def _attention(ours: str = "", theirs: str = "") -> list[KeyRow]:
    return [
        KeyRow(tuple(f"{ours}{part}_proj.{kind}" for part in "qkv"), f"{theirs}in_proj_{kind}", STACKED)
        for kind in ("weight", "bias")
    ] + pair(f"{ours}out_proj", f"{theirs}out_proj")


ENCODER_LAYER = (
    *_attention("self_attn.", "self_attn."),
    *pair("self_attn_residual.norm", "norm1"),
    *pair("feed_forward.up_proj", "linear1"),
    *pair("feed_forward.down_proj", "linear2"),
    *pair("feed_forward_residual.norm", "norm2"),
)

DECODER_LAYER = (
    *_attention("self_attn.", "self_attn."),
    *pair("self_attn_residual.norm", "norm1"),
    *_attention("cross_attn.", "multihead_attn."),
    *pair("cross_attn_residual.norm", "norm2"),
    *pair("feed_forward.up_proj", "linear1"),
    *pair("feed_forward.down_proj", "linear2"),
    *pair("feed_forward_residual.norm", "norm3"),
)


def attention_table() -> KeyTable:
    """Return the key table of nn.MultiheadAttention and our MultiHeadAttention."""
    return KeyTable(tuple(_attention()))


def encoder_layer_table() -> KeyTable:
    """Return the key table of nn.TransformerEncoderLayer."""
    return KeyTable(ENCODER_LAYER)


def decoder_layer_table() -> KeyTable:
    """Return the key table of nn.TransformerDecoderLayer."""
    return KeyTable(DECODER_LAYER)


def encoder_table(num_layers: int, *, final_norm: bool) -> KeyTable:
    """Return the key table of nn.TransformerEncoder."""
    return KeyTable(tuple(_stack(ENCODER_LAYER, num_layers, final_norm)))


def decoder_table(num_layers: int, *, final_norm: bool) -> KeyTable:
    """Return the key table of nn.TransformerDecoder."""
    return KeyTable(tuple(_stack(DECODER_LAYER, num_layers, final_norm)))


def transformer_table(num_encoder_layers: int, num_decoder_layers: int, *, final_norm: bool = True) -> KeyTable:
    """Return the key table of nn.Transformer and our encoder and decoder."""
    encoder = _stack(ENCODER_LAYER, num_encoder_layers, final_norm, at="encoder.")
    decoder = _stack(DECODER_LAYER, num_decoder_layers, final_norm, at="decoder.")
    return KeyTable((*encoder, *decoder))


def import_torch_state(config: ModelConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of our encoder and decoder from the state dict of an nn.Transformer.

    The state dict stores neither the number of heads nor the activation; `config` must name the right ones. It has no
    embeddings and no output either; the caller must add these tensors before `clearhead.files.tensors.load_tensors`.

    Args:
        config: Our model settings; `final_norm` is usually True, as nn.Transformer ends both stacks with a norm.
        state: All tensors, by name.

    Raises:
        ConfigError: Naming every setting that nn.Transformer does not support.
        ModelError: Listing every tensor that is missing or unknown.
    """
    config = resolved(config)
    width = config.d_model // config.num_heads
    wanted = {
        "attention_bias": True,
        "feed_forward_bias": True,
        "gated": False,
        "norm_kind": "layer",
        "d_k": width,
        "d_v": width,
    }
    problems = [
        f"model.{name} is {getattr(config, name)!r} ({value!r} there)"
        for name, value in wanted.items()
        if getattr(config, name) != value
    ]
    if config.positions == "rotary":
        problems.append("model.positions is 'rotary', which is within attention (nn.Transformer has none there)")
    if problems:
        raise ConfigError(f"an nn.Transformer cannot be this model: {'; '.join(problems)}")
    table = transformer_table(config.num_encoder_layers, config.num_decoder_layers, final_norm=bool(config.final_norm))
    return table.from_theirs(state, origin="this state of nn.Transformer")


def _stack(layer: tuple[KeyRow, ...], num_layers: int, final_norm: bool, *, at: str = "") -> list[KeyRow]:
    rows = numbered(layer, num_layers, ours=f"{at}layers.{{i}}.", theirs=f"{at}layers.{{i}}.")
    return rows + pair(f"{at}final_norm", f"{at}norm") if final_norm else rows
