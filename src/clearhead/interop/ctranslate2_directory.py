"""Models of ours as directories of CTranslate2, written through its own specification of a Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from clearhead.bundle import Bundle
from clearhead.choices import ExportPrecision
from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.interop.equivalent import resolved
from clearhead.model.positions import sinusoidal_positions
from clearhead.tokenizers import SPECIAL_TOKENS, Tokenizer

__all__ = ["write_ctranslate2"]

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
"""Our name of an activation to theirs."""


def write_ctranslate2(bundle: Bundle, directory: Path, precision: ExportPrecision) -> None:
    """Write model and vocabulary into a directory.

    Args:
        bundle: A model with a vocabulary that was learned here.
        directory: Which is there, and empty.
        precision: Of the weights.

    Raises:
        ConfigError: Naming every setting that their library has not.
        ModelError: If it is not installed.
        OSError: If the files cannot be written.
    """
    try:
        from ctranslate2.specs import TransformerSpec, common_spec
    except ImportError:
        raise ModelError("CTranslate2 is not installed: pip install 'clearhead[interop]'") from None
    model, tokenizer, config = bundle.model, bundle.tokenizer, resolved(bundle.model.config)
    assert isinstance(tokenizer, Tokenizer)
    _require_expressible(config)
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        no_final_norm=not config.final_norm,
        activation=getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
        layernorm_embedding=config.embedding_norm,
        ffn_glu=config.gated,
        rms_norm=config.norm_kind == "rms",
    )
    for stack, ours, embedding in (
        (spec.encoder, model.encoder, model.source_embedding),
        (spec.decoder, model.decoder, model.target_embedding),
    ):
        table = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
        table.weight = _numbers(embedding.weight)
        stack.scale_embeddings = config.embedding_scale
        stack.position_encodings.encodings = _positions(config, embedding)
        if config.embedding_norm:
            _set_norm(stack.layernorm_embedding, embedding.norm)
        if config.final_norm:
            _set_norm(stack.layer_norm, ours.final_norm)
        for theirs, layer in zip(stack.layer, ours.layers, strict=True):
            _set_layer(theirs, layer)
    _set_linear(spec.decoder.projection, [model.output_proj])
    pieces = tokenizer.tokens()
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    _, spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = SPECIAL_TOKENS
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(directory))


def _require_expressible(config: ModelConfig) -> None:
    """Make sure that their Transformer has what ours has.

    Raises:
        ConfigError: Naming every setting that it has not.
    """
    wanted = {
        "d_k": config.d_model // config.num_heads,
        "d_v": config.d_model // config.num_heads,
        "final_norm": config.norm == "pre",
        "num_segments": 0,
        "attention_scale": True,
        "output_scale": False,
        "source_vocabulary": config.vocab_size,
    }
    problems = [
        f"model.{name} is {getattr(config, name)!r} (CTranslate2 has {value!r})"
        for name, value in wanted.items()
        if getattr(config, name) != value
    ]
    if not (config.positions == "learned" or config.positions.startswith("sinusoidal")):
        problems.append(f"model.positions is {config.positions!r} (written are sinusoids and learned positions)")
    if not config.num_encoder_layers or not config.num_decoder_layers:
        problems.append("the model has an encoder or a decoder alone")
    if config.activation not in ACTIVATIONS:
        problems.append(f"model.activation is {config.activation!r}")
    if problems:
        raise ConfigError(f"CTranslate2 cannot hold this model: {'; '.join(problems)}")


def _positions(config: ModelConfig, embedding: Any) -> np.ndarray:
    if config.positions == "learned":
        return _numbers(embedding.positions.weight)
    layout: Any = config.positions
    return _numbers(sinusoidal_positions(config.max_positions, config.d_model, layout, first=config.first_position))


def _set_layer(theirs: Any, layer: Any) -> None:
    attention = layer.self_attn
    _set_linear(theirs.self_attention.linear[0], [attention.q_proj, attention.k_proj, attention.v_proj])
    _set_linear(theirs.self_attention.linear[1], [attention.out_proj])
    _set_norm(theirs.self_attention.layer_norm, layer.self_attn_residual.norm)
    if hasattr(layer, "cross_attn"):
        attention = layer.cross_attn
        _set_linear(theirs.attention.linear[0], [attention.q_proj])
        _set_linear(theirs.attention.linear[1], [attention.k_proj, attention.v_proj])
        _set_linear(theirs.attention.linear[2], [attention.out_proj])
        _set_norm(theirs.attention.layer_norm, layer.cross_attn_residual.norm)
    network = layer.feed_forward
    if hasattr(theirs.ffn, "linear_0_noact"):  # gated: the gate has the activation
        _set_linear(theirs.ffn.linear_0, [network.gate_proj])
        _set_linear(theirs.ffn.linear_0_noact, [network.up_proj])
    else:
        _set_linear(theirs.ffn.linear_0, [network.up_proj])
    _set_linear(theirs.ffn.linear_1, [network.down_proj])
    _set_norm(theirs.ffn.layer_norm, layer.feed_forward_residual.norm)


def _set_linear(theirs: Any, ours: Sequence[Any]) -> None:
    """Put linear maps of ours above one another."""
    theirs.weight = np.concatenate([_numbers(linear.weight) for linear in ours])
    if ours[0].bias is not None:
        theirs.bias = np.concatenate([_numbers(linear.bias) for linear in ours])


def _set_norm(theirs: Any, norm: nn.Module | None) -> None:
    assert norm is not None
    theirs.gamma = _numbers(norm.weight)
    if hasattr(theirs, "beta"):
        theirs.beta = _numbers(norm.bias)


def _numbers(tensor: Tensor | nn.Module) -> np.ndarray:
    assert isinstance(tensor, Tensor)
    return np.array(tensor.detach().float().cpu().numpy())  # a copy: their library rounds in place
