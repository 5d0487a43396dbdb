"""The same model written another way: rewrites of settings and tensors that leave every logit as it is.

They bring our models into the form other libraries know, who have biases everywhere or order their sinusoids otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.config import ModelConfig

__all__ = [
    "Rewrite",
    "permute_stream",
    "resolved",
    "undone",
    "with_attention_biases",
    "with_feed_forward_biases",
    "with_output_bias",
    "with_rows",
    "with_sine_halves",
]

Rewrite = Callable[[ModelConfig, Mapping[str, Tensor]], tuple[ModelConfig, dict[str, Tensor]]]
"""From settings and tensors to other ones with the same logits."""

HIDDEN = -10_000.0
"""Bias of a token whose probability is 0 in float32, whatever the others' logits are."""

_BIASED: Mapping[str, Collection[str]] = {
    "attention_bias": ("q_proj", "k_proj", "v_proj", "out_proj"),
    "feed_forward_bias": ("up_proj", "gate_proj", "down_proj"),
    "output_bias": ("output_proj",),
}
"""Setting to the modules to which it gives biases."""


def resolved(config: ModelConfig) -> ModelConfig:
    """Return the same settings with what "if not set" means written out."""
    has_encoder, has_decoder = config.num_encoder_layers > 0, config.num_decoder_layers > 0
    written: dict[str, Any] = {
        "d_k": config.key_dim,
        "d_v": config.value_dim,
        "final_norm": config.norm == "pre" if config.final_norm is None else config.final_norm,
    }
    if not has_decoder:
        # One matrix, nothing to tie.
        written |= {"tying": "three-way", "vocab_size": config.source_vocabulary}
        written["source_vocab_size"] = None
    elif not has_encoder:
        written["tying"] = "decoder" if config.tying in ("three-way", "decoder") else "none"
        written["source_vocab_size"] = None
    elif config.tying in ("decoder", "none"):
        written["source_vocab_size"] = config.source_vocabulary
    return _changed(config, **written)


def with_attention_biases(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Give the projections of attention biases of zero, if they have none."""
    if config.attention_bias:
        return config, dict(tensors)
    return _changed(config, attention_bias=True), _with_zero_biases(tensors, _BIASED["attention_bias"])


def with_feed_forward_biases(
    config: ModelConfig, tensors: Mapping[str, Tensor]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Give the feed-forward network biases of zero, if it has none."""
    if config.feed_forward_bias:
        return config, dict(tensors)
    return _changed(config, feed_forward_bias=True), _with_zero_biases(tensors, _BIASED["feed_forward_bias"])


def with_output_bias(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Give the linear map before the softmax a bias of zero, if it has none."""
    if config.output_bias or config.num_decoder_layers == 0:
        return config, dict(tensors)
    # A tied map has no weight of its own here, so the shape comes from the settings.
    like = next(iter(tensors.values()), torch.empty(0))
    return _changed(config, output_bias=True), {**tensors, "output_proj.bias": like.new_zeros(config.vocab_size)}


def with_rows(tensors: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
    """Give embeddings and output more rows, for tokens that are never written: zeros, and a bias that hides them.

    A library that starts from no token at all starts from zeros, which is such a row here.

    Args:
        tensors: All tensors of an encoder-decoder; what does not fit the embeddings stays as it is.
        rows: How many there shall be, at least as many as there are.
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
    """Write a model with the paper's interleaved sinusoids as one whose sines stand before its cosines.

    The two tables are the same columns in another order, and no part of the model knows the order of its d_model
    components: permuted everywhere alike, they compute the same (`permute_stream`). An encoder alone, whose output is
    no logits but these vectors, gives them in the new order.
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
    """Write a model as it was before rewrites; what has been changed since stays: settings, biases that are not zero.

    Args:
        original: The settings before them.
        rewrites: Those that were applied.
        config: The settings now.
        tensors: The tensors now.
        unsaid: Settings that say nothing now, as the model comes from files that have no place for them.
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
    """Reorder the components of the vectors that run through the model's residual connections.

    Args:
        tensors: All tensors of a model.
        order: For each component of the new vectors, which component of the old ones it is [d_model].
    """
    return {
        name: tensor if (axis := _stream_axis(name)) is None else tensor.index_select(axis, order.to(tensor.device))
        for name, tensor in tensors.items()
    }


def _stream_axis(name: str) -> int | None:
    """Return the axis of a tensor that counts the components of the residual stream."""
    module, kind = name.split(".")[-2:]
    if module == "relative_positions":
        return None
    if module in ("out_proj", "down_proj", "norm", "final_norm"):
        return 0  # what is added to the stream, and norms of it
    return 1 if kind == "weight" else None  # what reads the stream, and embeddings; other biases are within a part


def _sines_first(d_model: int) -> Tensor:
    """Return which of the interleaved components each component is where all sines stand before all cosines."""
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
