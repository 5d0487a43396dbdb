"""Settings of models that are known by name."""

from __future__ import annotations

T5_FORM = {
    "norm": "pre",
    "norm_kind": "rms",
    "positions": "relative",
    "attention_scale": False,
    "embedding_scale": False,
    "feed_forward_bias": False,
}
"""The form of T5; its output may be divided, too."""
