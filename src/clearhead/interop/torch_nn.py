"""Key tables of torch.nn's attention, layers and stacks.

Its attention always has biases, so ours needs `attention_bias`. nn.Transformer ends both stacks with a norm, which is
our `final_norm=True`; it has no embeddings, positions or output.
"""

from __future__ import annotations

from clearhead.interop.key_table import STACKED, KeyTable, Row, numbered, pair

__all__ = [
    "attention_table",
    "decoder_layer_table",
    "decoder_table",
    "encoder_layer_table",
    "encoder_table",
    "transformer_table",
]


def _attention(ours: str = "", theirs: str = "") -> list[Row]:
    return [
        Row(tuple(f"{ours}{part}_proj.{kind}" for part in "qkv"), f"{theirs}in_proj_{kind}", STACKED)
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
    """Return the tensors of nn.MultiheadAttention, which are those of our MultiHeadAttention."""
    return KeyTable(tuple(_attention()))


def encoder_layer_table() -> KeyTable:
    """Return the tensors of nn.TransformerEncoderLayer."""
    return KeyTable(ENCODER_LAYER)


def decoder_layer_table() -> KeyTable:
    """Return the tensors of nn.TransformerDecoderLayer."""
    return KeyTable(DECODER_LAYER)


def encoder_table(num_layers: int, *, final_norm: bool) -> KeyTable:
    """Return the tensors of nn.TransformerEncoder."""
    return KeyTable(tuple(_stack(ENCODER_LAYER, num_layers, final_norm)))


def decoder_table(num_layers: int, *, final_norm: bool) -> KeyTable:
    """Return the tensors of nn.TransformerDecoder."""
    return KeyTable(tuple(_stack(DECODER_LAYER, num_layers, final_norm)))


def transformer_table(num_encoder_layers: int, num_decoder_layers: int, *, final_norm: bool = True) -> KeyTable:
    """Return the tensors of nn.Transformer, which are those of our stacks."""
    encoder = _stack(ENCODER_LAYER, num_encoder_layers, final_norm, at="encoder.")
    decoder = _stack(DECODER_LAYER, num_decoder_layers, final_norm, at="decoder.")
    return KeyTable((*encoder, *decoder))


def _stack(layer: tuple[Row, ...], num_layers: int, final_norm: bool, *, at: str = "") -> list[Row]:
    rows = numbered(layer, num_layers, ours=f"{at}layers.{{i}}.", theirs=f"{at}layers.{{i}}.")
    return rows + pair(f"{at}final_norm", f"{at}norm") if final_norm else rows
