"""Rewrites of settings and tensors that leave all logits unchanged, and undoing them on re-import.

They bring our models into the form of other libraries, which have biases everywhere or another order of sinusoids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.config import ModelConfig

Rewrite = Callable[[ModelConfig, Mapping[str, Tensor]], tuple[ModelConfig, dict[str, Tensor]]]
"""Function from settings and tensors to other settings and tensors with the same logits."""

HIDDEN = -10_000.0
"""Bias of a token that is never written: its probability is 0 in float32, whatever the other logits are."""

_BIASED: Mapping[str, Collection[str]] = {
    "attention_bias": ("q_proj", "k_proj", "v_proj", "out_proj"),
    "feed_forward_bias": ("up_proj", "gate_proj", "down_proj"),
    "output_bias": ("output_proj",),
}
"""Bias settings to the modules that get biases."""


def resolved(config: ModelConfig) -> ModelConfig:
    """Return the settings with all implied defaults ("if not set") filled in."""
    has_encoder, has_decoder = config.num_encoder_layers > 0, config.num_decoder_layers > 0
    written: dict[str, Any] = {
        "d_k": config.key_dim,
        "d_v": config.value_dim,
        "final_norm": config.norm == "pre" if config.final_norm is None else config.final_norm,
    }
    if not has_decoder:
        # A model without a decoder has one matrix, so nothing is tied.
        written |= {"tying": "three-way", "vocab_size": config.source_vocabulary}
        written["source_vocab_size"] = None
    elif not has_encoder:
        written["tying"] = "decoder" if config.tying in ("three-way", "decoder") else "none"
        written["source_vocab_size"] = None
    elif config.tying in ("decoder", "none"):
        written["source_vocab_size"] = config.source_vocabulary
    return _changed(config, **written)


def with_attention_biases(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Add zero biases to the attention projections, if they have none."""
    if config.attention_bias:
        return config, dict(tensors)
    return _changed(config, attention_bias=True), _with_zero_biases(tensors, _BIASED["attention_bias"])


def with_feed_forward_biases(
    config: ModelConfig, tensors: Mapping[str, Tensor]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Add zero biases to the feed-forward network, if it has none."""
    if config.feed_forward_bias:
        return config, dict(tensors)
    return _changed(config, feed_forward_bias=True), _with_zero_biases(tensors, _BIASED["feed_forward_bias"])


def with_output_bias(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Add a zero bias to the linear map before the softmax, if it has none."""
    if config.output_bias or config.num_decoder_layers == 0:
        return config, dict(tensors)
    # A tied map has no weight of its own here, so the shape comes from the settings.
    like = next(iter(tensors.values()), torch.empty(0))
    return _changed(config, output_bias=True), {**tensors, "output_proj.bias": like.new_zeros(config.vocab_size)}


def with_rows(tensors: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
    """Add rows to embeddings and output, for tokens that are never written.

    The new rows are zeros, and a large negative bias suppresses their tokens. Some libraries start decoding from a zero
    embedding; in our model that is such a row.

    Args:
        tensors: All tensors of an encoder-decoder; those that do not fit the embeddings are left unchanged.
        rows: New number of rows, at least the present one.
    """
    source = tensors["source_embedding.weight"]
    size = len(tensors.get("target_embedding.weight", source))
    bias = tensors.get("output_proj.bias", source.new_zeros(size))
    if bias.shape == (size,):
        bias = torch.cat([bias, bias.new_full((rows - size,), HIDDEN)])
    more = {"output_proj.bias": bias}
    for name, own in (
        ("source_embedding.weight", len(source)),
        ("target_embedding.weight", size),
        ("output_proj.weight", size),
    ):
        if name in tensors and tensors[name].dim() == 2 and len(tensors[name]) == own:
            more[name] = functional.pad(tensors[name], (0, 0, 0, rows - own))
    return {**tensors, **more}


def with_sine_halves(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Convert a model with the paper's interleaved sinusoids to one with sines before cosines.

    The two tables have the same columns in another order. No part of the model depends on the order of its d_model
    components: if all are permuted alike, the result is the same (`permute_stream`). The output of an encoder alone is
    these vectors, not logits, so its components are in the new order.
    """
    if config.positions != "sinusoidal":
        return config, dict(tensors)
    return _changed(config, positions="sinusoidal_halves"), permute_stream(tensors, _sines_first(config.d_model))


def undone(
    original: ModelConfig,
    rewrites: Iterable[Rewrite],
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    unsaid: Collection[str] = (),
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Undo rewrites of a model; keep later changes, such as settings and biases that are no longer zero.

    Args:
        original: Settings before the rewrites.
        rewrites: Rewrites that were applied.
        config: Present settings.
        tensors: Present tensors.
        unsaid: Names of settings to ignore in `config`, because the files it was read from cannot store them.
    """
    written = original
    for rewrite in rewrites:
        written, _ = rewrite(written, {})
    before, now = (resolved(settings).model_dump() for settings in (written, config))
    changed = {name: value for name, value in now.items() if value != before[name] and name not in unsaid}
    settings = {**original.model_dump(), **changed}
    kept = dict(tensors)
    for setting, modules in _BIASED.items():
        biases = [name for name in tensors if name.endswith(".bias") and name.split(".")[-2] in modules]
        settings[setting] = settings[setting] or any(bool(tensors[name].any()) for name in biases)
        if not settings[setting]:
            kept = {name: tensor for name, tensor in kept.items() if name not in biases}
    if (config.positions, settings["positions"]) == ("sinusoidal_halves", "sinusoidal"):
        kept = permute_stream(kept, _sines_first(config.d_model).argsort())
    return ModelConfig(**settings), kept


def permute_stream(tensors: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Permute the components of the residual stream.

    Args:
        tensors: All tensors of a model.
        order: For each component of the new vectors, its index in the old ones [d_model].
    """
    return {
        name: tensor if (axis := _stream_axis(name)) is None else tensor.index_select(axis, order.to(tensor.device))
        for name, tensor in tensors.items()
    }


def _stream_axis(name: str) -> int | None:
    """Return the axis of a tensor that runs over the components of the residual stream."""
    module, kind = name.split(".")[-2:]
    if module == "relative_positions":
        return None
    if module in ("out_proj", "down_proj", "norm", "final_norm"):
        return 0  # projections that add to the stream, and norms of it
    return 1 if kind == "weight" else None  # readers of the stream, and embeddings; other biases are inside a sub-layer


def _sines_first(d_model: int) -> Tensor:
    """Return the order that moves all sines before all cosines: the interleaved column of each new column."""
    columns = torch.arange(d_model)
    return torch.cat([columns[0::2], columns[1::2]])


def _changed(config: ModelConfig, **settings: Any) -> ModelConfig:
    return ModelConfig(**{**config.model_dump(), **settings})


def _with_zero_biases(tensors: Mapping[str, Tensor], modules: Collection[str]) -> dict[str, Tensor]:
    biases = {
        name.removesuffix("weight") + "bias": tensor.new_zeros(len(tensor))
        for name, tensor in tensors.items()
        if name.split(".")[-2] in modules and name.endswith(".weight")
    }
    return {**tensors, **biases}
