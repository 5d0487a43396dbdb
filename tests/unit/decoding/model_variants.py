"""Settings of models that every engine computes, each a change of a small model."""

from __future__ import annotations

from typing import Any

VARIANTS: list[dict[str, Any]] = [
    {},
    *({"norm": norm, "norm_kind": kind} for norm in ("post", "pre") for kind in ("layer", "rms")),
    {"norm": "pre", "final_norm": False},
    {"norm": "post", "final_norm": True},
    {"norm_eps": 0.3},
    *(
        {"activation": name, "gated": gated}
        for name in ("relu", "gelu", "gelu_tanh", "silu")
        for gated in (False, True)
    ),
    {"attention_bias": True},
    {"feed_forward_bias": False},
    {"output_bias": True},
    *({"positions": kind} for kind in ("sinusoidal_halves", "sinusoidal_t2t", "learned", "rotary", "none")),
    {"positions": "relative"},
    {"positions": "relative", "relative_attention_num_buckets": 6, "relative_attention_max_distance": 5, "norm": "pre"},
    {"attention_scale": False},
    {"output_scale": True},
    {"output_scale": True, "norm": "pre", "norm_kind": "rms", "output_bias": True},
    {"positions": "sinusoidal_t2t", "first_position": 2},
    {"num_segments": 2},
    {"embedding_scale": False},
    {"embedding_norm": True},
    *({"tying": kind} for kind in ("decoder", "embeddings", "none")),
    {"source_vocab_size": 29, "tying": "decoder"},
    {"dropout": 0.3, "attention_dropout": 0.3, "feed_forward_dropout": 0.3},
    {"pad_id": 5},
    {"bos_id": 0},
    {"bos_id": 2},
    {"pad_id": 36, "bos_id": 3, "eos_id": 0},
]


def described(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())
