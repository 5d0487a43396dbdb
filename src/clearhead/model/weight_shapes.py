"""Names and shapes of a model's weights, computed from its settings without PyTorch.

They are those of `Transformer.named_parameters`, which lists a shared matrix once, under its first name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a model by its name, without duplicates of shared matrices."""
    return {name: shape for name, shape in _model(config) if owner(config, name) == name}


def require_listed(config: ModelConfig, weights: Mapping[str, tuple[int, ...]]) -> None:
    """Require that `weight_shapes` lists the weights of a module, or a stored model could not be read.

    Args:
        config: The settings of the module.
        weights: Shape of each of its weights, by name.

    Raises:
        ConfigError: Naming a weight that is missing there, not in the module, or of another shape.
    """
    listed = weight_shapes(config)
    for name in {**weights, **listed}:
        ours, theirs = weights.get(name, "no such weight"), listed.get(name, "no such weight")
        if ours != theirs:
            raise ConfigError(
                f"{name}: the model has {ours}, and model/weight_shapes.py lists {theirs}; a model of these settings "
                f"could not be read again: see `An option of the model` in CONTRIBUTING.md"
            )


def owner(config: ModelConfig, name: str) -> str:
    """Return the name under which a weight is stored: for a shared matrix, the first of its names (section 3.4)."""
    if name == "output_proj.weight" and config.tying in ("three-way", "decoder"):
        return owner(config, "target_embedding.weight")
    if name == "target_embedding.weight" and config.num_encoder_layers and config.tying in ("three-way", "embeddings"):
        return "source_embedding.weight"
    return name


def has_final_norm(config: ModelConfig) -> bool:
    """Return whether a stack of layers ends with one more norm."""
    return config.norm == "pre" if config.final_norm is None else config.final_norm


def _model(config: ModelConfig) -> Shapes:
    if config.num_encoder_layers:
        yield from _embedding("source_embedding", config, config.source_vocabulary, config.num_segments)
        yield from _stack("encoder", config, config.num_encoder_layers, has_cross_attention=False)
    if config.num_decoder_layers:
        yield from _embedding("target_embedding", config, config.vocab_size, config.num_target_segments)
        has_cross_attention = not config.is_decoder_alone
        yield from _stack("decoder", config, config.num_decoder_layers, has_cross_attention=has_cross_attention)
        if config.output_transform:
            yield from _linear("output_transform.proj", config.d_model, config.d_model, bias=True)
            yield from _norm("output_transform.norm", config)
        yield from _linear("output_proj", config.d_model, config.vocab_size, bias=config.output_bias)


def _embedding(name: str, config: ModelConfig, vocab_size: int, num_segments: int) -> Shapes:
    yield f"{name}.weight", (vocab_size, config.d_model)
    if config.positions == "learned":
        yield f"{name}.positions.weight", (config.max_positions, config.d_model)
    if num_segments:
        yield f"{name}.segments.weight", (num_segments, config.d_model)
    if config.embedding_norm:
        yield from _norm(f"{name}.norm", config)


def _stack(name: str, config: ModelConfig, num_layers: int, *, has_cross_attention: bool) -> Shapes:
    if config.positions == "relative":
        yield f"{name}.relative_positions.weight", (config.relative_attention_num_buckets, config.num_heads)
    for number in range(num_layers):
        for kind in ("self_attn", "cross_attn") if has_cross_attention else ("self_attn",):
            yield from _attention(f"{name}.layers.{number}.{kind}", config)
            yield from _norm(f"{name}.layers.{number}.{kind}_residual.norm", config)
        yield from _feed_forward(f"{name}.layers.{number}.feed_forward", config)
        yield from _norm(f"{name}.layers.{number}.feed_forward_residual.norm", config)
    if has_final_norm(config):
        yield from _norm(f"{name}.final_norm", config)


def _attention(name: str, config: ModelConfig) -> Shapes:
    d_model, keys, values = config.d_model, config.num_heads * config.key_dim, config.num_heads * config.value_dim
    for part, inputs, outputs in (
        ("q_proj", d_model, keys),
        ("k_proj", d_model, keys),
        ("v_proj", d_model, values),
        ("out_proj", values, d_model),
    ):
        yield from _linear(f"{name}.{part}", inputs, outputs, bias=config.attention_bias)


def _feed_forward(name: str, config: ModelConfig) -> Shapes:
    for part in ("up_proj", "gate_proj") if config.gated else ("up_proj",):
        yield from _linear(f"{name}.{part}", config.d_model, config.d_ff, bias=config.feed_forward_bias)
    yield from _linear(f"{name}.down_proj", config.d_ff, config.d_model, bias=config.feed_forward_bias)


def _linear(name: str, inputs: int, outputs: int, *, bias: bool) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def _norm(name: str, config: ModelConfig) -> Shapes:
    match config.norm_kind:
        case "layer":
            yield f"{name}.weight", (config.d_model,)
            yield f"{name}.bias", (config.d_model,)
        case "rms":
            yield f"{name}.weight", (config.d_model,)
        case unknown:
            assert_never(unknown)
