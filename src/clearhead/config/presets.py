"""Presets: named models (Table 3, BERT, smaller ones), their training settings, and the choice by corpus size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from clearhead.config.model import OF_THE_TOKENIZER, ModelConfig
from clearhead.errors import ConfigError, nearest_name

_SHALLOW: Mapping[str, Any] = {"num_heads": 4, "num_encoder_layers": 4, "num_decoder_layers": 4, "norm": "pre"}


def tiny(*, vocab_size: int = 8_000) -> ModelConfig:
    """Return a model that trains on ten thousand pairs in minutes on a laptop (pre-norm)."""
    return ModelConfig(vocab_size=vocab_size, d_model=128, d_ff=512, **_SHALLOW)


def small(*, vocab_size: int = 16_000) -> ModelConfig:
    """Return a model for corpora of hundreds of thousands of pairs (pre-norm)."""
    return ModelConfig(vocab_size=vocab_size, d_model=256, d_ff=1024, **_SHALLOW)


def fast(*, vocab_size: int = 8_000) -> ModelConfig:
    """Return a model that translates fast, with most of its layers in the encoder, which runs once for each sentence.

    It is for text that a larger model has translated (`clearhead distill`; Kim and Rush 2016, Kasai et al. 2021).
    """
    return ModelConfig(
        vocab_size=vocab_size, d_model=128, d_ff=512, **{**_SHALLOW, "num_encoder_layers": 6, "num_decoder_layers": 1}
    )


TABLE3: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "paper-base": {},
    "table3-a-1-head": {"model": {"num_heads": 1}},
    "table3-a-4-heads": {"model": {"num_heads": 4}},
    "table3-a-16-heads": {"model": {"num_heads": 16}},
    "table3-a-32-heads": {"model": {"num_heads": 32}},
    "table3-b-dk-16": {"model": {"d_k": 16}},
    "table3-b-dk-32": {"model": {"d_k": 32}},
    "table3-c-2-layers": {"model": {"num_encoder_layers": 2, "num_decoder_layers": 2}},
    "table3-c-4-layers": {"model": {"num_encoder_layers": 4, "num_decoder_layers": 4}},
    "table3-c-8-layers": {"model": {"num_encoder_layers": 8, "num_decoder_layers": 8}},
    "table3-c-width-256": {"model": {"d_model": 256}},
    "table3-c-width-1024": {"model": {"d_model": 1024}},
    "table3-c-ff-1024": {"model": {"d_ff": 1024}},
    "table3-c-ff-4096": {"model": {"d_ff": 4096}},
    "table3-d-dropout-0.0": {"model": {"dropout": 0.0}},
    "table3-d-dropout-0.2": {"model": {"dropout": 0.2}},
    "table3-d-smoothing-0.0": {"train": {"label_smoothing": 0.0}},
    "table3-d-smoothing-0.2": {"train": {"label_smoothing": 0.2}},
    "table3-e-learned": {"model": {"positions": "learned"}},
    "paper-big": {
        "model": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
        "train": {"max_steps": 300_000},
    },
}
"""All rows of Table 3 in order: the preset's name, and its changes to the base model and to its training.

The width of a head is d_model / num_heads, except in rows B, where only queries and keys are narrower.
"""


def table3_row(name: str, *, vocab_size: int = 37_000) -> ModelConfig:
    """Return the model of a row of Table 3, by its name in `TABLE3`.

    Raises:
        ConfigError: If there is no such row.
    """
    if name not in TABLE3:
        raise ConfigError(f"no row {name!r} of Table 3{nearest_name(name, TABLE3)}")
    return ModelConfig(vocab_size=vocab_size, **TABLE3[name].get("model", {}))


def paper_base(*, vocab_size: int = 37_000) -> ModelConfig:
    """Return the base model exactly as in the paper (Table 3, row "base")."""
    return table3_row("paper-base", vocab_size=vocab_size)


def paper_big(*, vocab_size: int = 37_000) -> ModelConfig:
    """Return the big model (Table 3, last row), for EN-DE; for EN-FR its dropout was 0.1 (section 6.1)."""
    return table3_row("paper-big", vocab_size=vocab_size)


def bert_base(*, vocab_size: int = 30_522) -> ModelConfig:
    """Return the encoder of BERT base (Devlin et al. 2019): 12 layers, width 768, 12 heads; no pooler.

    It has no decoder, so it is for Python (`Transformer.encode`), not for `clearhead train`.
    """
    return _bert(vocab_size, num_layers=12, d_model=768)


def bert_large(*, vocab_size: int = 30_522) -> ModelConfig:
    """Return the encoder of BERT large: 24 layers, width 1024, 16 heads; otherwise as `bert_base`."""
    return _bert(vocab_size, num_layers=24, d_model=1024)


def _bert(vocab_size: int, *, num_layers: int, d_model: int) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        d_ff=4 * d_model,
        num_heads=d_model // 64,
        num_encoder_layers=num_layers,
        num_decoder_layers=0,
        attention_dropout=0.1,
        norm_eps=1e-12,
        activation="gelu",
        attention_bias=True,
        positions="learned",
        max_positions=512,
        num_segments=2,
        embedding_scale=False,
        embedding_norm=True,
    )


PRESETS: Mapping[str, Callable[..., ModelConfig]] = {
    "tiny": tiny,
    "small": small,
    "fast": fast,
    **{name: partial(table3_row, name) for name in TABLE3},
    "bert-base": bert_base,
    "bert-large": bert_large,
}

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"batch_tokens": 1_024, "learning_rate": 3e-3, "warmup_steps": 400, "schedule": "linear"},
    "small": {"batch_tokens": 4_096, "learning_rate": 1.5e-3, "warmup_steps": 1_000, "schedule": "linear"},
    "fast": {"batch_tokens": 1_024, "learning_rate": 3e-3, "warmup_steps": 400, "schedule": "linear"},
    # Table 3 compares models after 100,000 steps without averaging; Table 2 averages (section 6.1).
    **{
        name: {"clip_norm": 0.0, "average_last": 1, "max_steps": 100_000, **changes.get("train", {})}
        for name, changes in TABLE3.items()
    },
    "paper-base": {"clip_norm": 0.0, "average_last": 5},
    "paper-big": {"clip_norm": 0.0, "average_last": 20, "keep_checkpoints": 20, **TABLE3["paper-big"]["train"]},
}
"""Settings of `[train]` for each preset that differ from the defaults. Additions to the paper, such as `patience` and
the cleaning of text, keep their defaults. Encoder-only presets are missing: they cannot be trained on pairs of text.
The presets of the paper train without augmented text (`data.augment`)."""


AUTOMATIC_PRESETS = {"tiny": 100_000, "small": 1_000_000, "paper-base": math.inf}
"""Presets chosen by corpus size; each is used for corpora with fewer sentence pairs than its number."""


def choose_preset(num_pairs: int) -> str:
    """Return the preset that suits a corpus of this many sentence pairs."""
    return next(name for name, too_many in AUTOMATIC_PRESETS.items() if num_pairs < too_many)


def recipe(name: str) -> dict[str, Any]:
    """Return a preset as nested settings, which the user's own settings override.

    Raises:
        ConfigError: If there is no such preset, or it has no decoder.
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}{nearest_name(name, RECIPES)}")
    if name not in RECIPES:
        raise ConfigError(
            f"preset {name!r} is an encoder without a decoder, so it cannot learn to translate; "
            f"build it in Python: clearhead.Transformer(clearhead.config.presets.{name.replace('-', '_')}())"
        )
    model = PRESETS[name]().model_dump(exclude=OF_THE_TOKENIZER)
    settings = {"preset": name, "model": model, "train": dict(RECIPES[name])}
    return {**settings, "data": {"augment": False}} if name in TABLE3 else settings
