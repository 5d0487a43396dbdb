"""Models of every option, for `make_translator`."""

from __future__ import annotations

from typing import Any

KINDS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"norm": "post"},
    "rms": {"norm_kind": "rms", "final_norm": True, "norm": "post"},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative", "attention_scale": False, "output_scale": True},
    "gated": {"gated": True, "activation": "silu", "attention_bias": True},
    "untied": {"tying": "none", "output_bias": True, "output_transform": True, "embedding_norm": True},
    "widths": {"d_k": 3, "d_v": 5},
    "decoder": {"num_encoder_layers": 0, "tying": "decoder", "positions": "learned", "max_positions": 64},
    "encoder": {"num_decoder_layers": 0},
}
