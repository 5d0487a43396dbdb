"""Named models and the training recipe that goes with each: plain functions that return a `ModelConfig`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, nearest_name

__all__ = ["PRESETS", "RECIPES", "choose_preset", "paper_base", "paper_big", "recipe", "small", "tiny"]


def tiny(*, vocab_size: int = 8_000) -> ModelConfig:
    """Return a model that learns ten thousand pairs in minutes on a laptop (pre-norm)."""
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=128,
        d_ff=512,
        num_heads=4,
        num_encoder_layers=4,
        num_decoder_layers=4,
        norm="pre",
    )


def small(*, vocab_size: int = 16_000) -> ModelConfig:
    """Return a model for hundreds of thousands of pairs (pre-norm)."""
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=256,
        d_ff=1024,
        num_heads=4,
        num_encoder_layers=4,
        num_decoder_layers=4,
        norm="pre",
    )


def paper_base(*, vocab_size: int = 37_000) -> ModelConfig:
    """Return the base model exactly as the paper prints it (Table 3, row "base")."""
    return ModelConfig(vocab_size=vocab_size)


def paper_big(*, vocab_size: int = 37_000) -> ModelConfig:
    """Return the big model (Table 3, last row)."""
    return ModelConfig(vocab_size=vocab_size, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3)


PRESETS: Mapping[str, Callable[..., ModelConfig]] = {
    "tiny": tiny,
    "small": small,
    "paper-base": paper_base,
    "paper-big": paper_big,
}

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"batch_tokens": 1_024, "learning_rate": 3e-3, "warmup_steps": 400, "schedule": "linear"},
    "small": {"batch_tokens": 4_096, "learning_rate": 1.5e-3, "warmup_steps": 1_000, "schedule": "linear"},
    "paper-base": {"clip_norm": 0.0, "average_last": 5},
    "paper-big": {"clip_norm": 0.0, "average_last": 20, "keep_checkpoints": 20, "max_steps": 300_000},
}
"""Settings of `[train]` that go with a preset, where they differ from the defaults (which are the paper's)."""


def choose_preset(num_pairs: int) -> str:
    """Return the preset that suits a corpus of this many sentence pairs."""
    if num_pairs < 100_000:
        return "tiny"
    return "small" if num_pairs < 1_000_000 else "paper-base"


def recipe(name: str) -> dict[str, Any]:
    """Return a preset as nested settings, ready to be laid under the user's own.

    Raises:
        ConfigError: If there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}{nearest_name(name, PRESETS)}")
    model = PRESETS[name]().model_dump()
    del model["vocab_size"]  # the tokenizer decides
    return {"preset": name, "model": model, "train": dict(RECIPES[name])}
