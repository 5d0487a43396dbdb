"""Weights and floating-point operations of any model in closed form, and operations as PyTorch counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import torch
from torch.utils.flop_counter import FlopCounterMode

from clearhead.config import ModelConfig


def parameter_count(config: ModelConfig) -> int:
    """Return the number of weights without building the model; a shared matrix counts once.

    For the base model: V d for the single embedding matrix, 4 d^2 for each attention, 2 d d_ff + d_ff + d for each
    feed-forward network and 2 d for each norm.

    >>> parameter_count(ModelConfig(vocab_size=37_000))
    63045632
    """
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    attention, feed_forward, norm = _attention_weights(config), _feed_forward_weights(config), _norm_weights(config)
    ends_in_norm = (config.norm == "pre") if config.final_norm is None else config.final_norm
    cross = 1 if encoder else 0
    total = _vocabulary_weights(config)
    if encoder:
        total += config.num_segments * config.d_model + _position_weights(config) + ends_in_norm * norm
        total += encoder * (attention + feed_forward + 2 * norm)
    if decoder:
        total += config.num_target_segments * config.d_model + _position_weights(config) + ends_in_norm * norm
        total += (config.d_model * (config.d_model + 1) + norm) if config.output_transform else 0
        total += decoder * ((1 + cross) * attention + feed_forward + (2 + cross) * norm)
    return total


def _vocabulary_weights(config: ModelConfig) -> int:
    """Return the weights of the distinct embedding and output matrices (section 3.4), plus the output bias."""
    source = config.source_vocabulary
    if not config.num_decoder_layers:
        rows = source
    elif not config.num_encoder_layers:
        rows = config.vocab_size * (1 if config.tying in ("three-way", "decoder") else 2)
    else:
        rows = {
            "three-way": config.vocab_size,
            "decoder": source + config.vocab_size,
            "embeddings": 2 * config.vocab_size,
            "none": source + 2 * config.vocab_size,
        }[config.tying]
    bias = config.vocab_size if config.output_bias and config.num_decoder_layers else 0
    return rows * config.d_model + bias


def _position_weights(config: ModelConfig) -> int:
    """Return the position weights of one side, learned or relative, plus the embedding norm if there is one."""
    learned = config.max_positions * config.d_model if config.positions == "learned" else 0
    relative = config.relative_attention_num_buckets * config.num_heads if config.positions == "relative" else 0
    return learned + relative + (_norm_weights(config) if config.embedding_norm else 0)


def _attention_weights(config: ModelConfig) -> int:
    keys, values = config.num_heads * config.key_dim, config.num_heads * config.value_dim
    biases = 2 * keys + values + config.d_model if config.attention_bias else 0
    return 2 * config.d_model * (keys + values) + biases


def _feed_forward_weights(config: ModelConfig) -> int:
    up = 2 if config.gated else 1
    biases = up * config.d_ff + config.d_model if config.feed_forward_bias else 0
    return (up + 1) * config.d_model * config.d_ff + biases


def _norm_weights(config: ModelConfig) -> int:
    match config.norm_kind:
        case "layer":
            return 2 * config.d_model
        case "rms":  # it has no bias
            return config.d_model
        case unknown:
            assert_never(unknown)


def forward_flops(config: ModelConfig, source_length: int, target_length: int) -> int:
    """Return the floating-point operations of all matrix products for one sentence pair.

    A multiplication and an addition count as one each. Masked positions count too: a causal mask hides half of the
    scores only after they were computed.

    Args:
        config: Model with encoder layers, decoder layers or both.
        source_length: Source tokens including the end token; 0 for a decoder alone.
        target_length: Target tokens including the end token; 0 for an encoder alone.
    """
    d, source, target = config.d_model, source_length, target_length
    keys, values = config.num_heads * config.key_dim, config.num_heads * config.value_dim
    asking, asked = d * keys + values * d, d * keys + d * values  # W^Q and W^O; W^K and W^V
    feed_forward = (3 if config.gated else 2) * d * config.d_ff
    pairs = keys + values  # q k^T and the weighted sum, for each query and key

    encoder_layer = source * (asking + asked + feed_forward) + source * source * pairs
    decoder_layer = target * (asking + asked + feed_forward) + target * target * pairs
    if config.num_encoder_layers:
        decoder_layer += target * asking + source * asked + target * source * pairs
    products = config.num_encoder_layers * encoder_layer
    if config.num_decoder_layers:
        transform = d * d if config.output_transform else 0
        products += config.num_decoder_layers * decoder_layer + target * (transform + d * config.vocab_size)
    return 2 * products


def counted_flops(run: Callable[[], object]) -> int:
    """Return the floating-point operations of all matrix products of a call, as counted by PyTorch."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def training_flops(config: ModelConfig, *, batch_tokens: int, length: int, steps: int) -> int:
    """Return the floating-point operations of a whole training run.

    For each product of the forward pass the backward pass needs two: for the gradients of the input and of the weights.

    Args:
        config: Model with an encoder and a decoder.
        batch_tokens: Source tokens per step; the number of target tokens is the same.
        length: Tokens of every sentence, on both sides.
        steps: Optimiser steps.
    """
    return 3 * forward_flops(config, length, length) * batch_tokens // length * steps
