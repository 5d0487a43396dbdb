"""The Transformer in the paper's order of parts; start with transformer.py."""

from typing import TYPE_CHECKING

from clearhead.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
    from clearhead.model.cache import DecoderCache
    from clearhead.model.decoder import Decoder
    from clearhead.model.encoder import Encoder
    from clearhead.model.recorder import AttentionWeights, HiddenStates, Recorder
    from clearhead.model.transformer import Transformer

# Imported on first use, because a stored model and its sizes need no PyTorch.
if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "AttentionWeights": "recorder",
            "Decoder": "decoder",
            "DecoderCache": "cache",
            "Encoder": "encoder",
            "HiddenStates": "recorder",
            "MultiHeadAttention": "attention",
            "Recorder": "recorder",
            "Transformer": "transformer",
            "scaled_dot_product_attention": "attention",
        },
    )

__all__ = [
    "AttentionWeights",
    "Decoder",
    "DecoderCache",
    "Encoder",
    "HiddenStates",
    "MultiHeadAttention",
    "Recorder",
    "Transformer",
    "scaled_dot_product_attention",
]
