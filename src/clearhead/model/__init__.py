"""The Transformer in the paper's order of parts; start with transformer.py."""

from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.cache import DecoderCache
from clearhead.model.decoder import Decoder
from clearhead.model.encoder import Encoder
from clearhead.model.recorder import AttentionWeights, HiddenStates, Recorder
from clearhead.model.transformer import Transformer

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
