"""fairseq's Transformer: post- or pre-norm, tensor2tensor's sinusoids or learned positions, biases everywhere.

Settings and names of tensors after its public source (0.12.2: models/transformer, modules), which cannot be installed
beside this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.equivalent import resolved
from clearhead.interop.huggingface.families.bart_shape import computed_positions, stack_rows
from clearhead.interop.key_table import KeyTable, LeftOut, embedding_rows
from clearhead.interop.readers.their_config import TheirConfig

__all__ = ["EOS", "PAD", "SOURCE", "TARGET", "config_from", "ends_with_norm", "key_table", "upgraded"]

PAD, EOS = 1, 2
"""Ids of the dictionary; positions count on from the first."""
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
"""Names of the embeddings."""
_OUTPUT = "decoder.output_projection.weight"

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
"""Their name of an activation to ours."""

DEFAULTS: Mapping[str, Any] = {
    "activation_dropout": 0.0,
    "activation_fn": "relu",
    "attention_dropout": 0.0,
    "decoder_learned_pos": False,
    "decoder_normalize_before": False,
    "dropout": 0.1,
    "encoder_learned_pos": False,
    "encoder_normalize_before": False,
    "layernorm_embedding": False,
    "max_source_positions": 1_024,
    "max_target_positions": 1_024,
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
}
"""What its architectures take for settings that old files leave out."""

_ELSEWHERE: Mapping[str, Any] = {
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "base_layers": 0,
    "char_inputs": False,
    "cross_self_attention": False,
    "decoder_layers_to_keep": None,
    "encoder_layers_to_keep": None,
    "no_cross_attention": False,
    "scale_attn": False,
    "scale_fc": False,
    "scale_heads": False,
    "scale_resids": False,
}
"""Settings that our model has not, and the value that asks for nothing."""


def config_from(
    values: Mapping[str, Any], source_size: int, target_size: int, *, ends_with_norm: bool, origin: object
) -> ModelConfig:
    """Return our settings of a model.

    Args:
        values: Its arguments, by the names that the command line has.
        source_size: Words of the source's dictionary.
        target_size: Words of the target's.
        ends_with_norm: Whether a pre-norm model has a norm after its last layers.
        origin: The file, for messages.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
    """
    their = TheirConfig(values, DEFAULTS, origin=origin)
    if "transformer" not in (arch := str(values.get("arch", "transformer"))):
        their.problems.append(f"arch is {arch!r:.100}, but must be a transformer")
    their.nothing_else(_ELSEWHERE)
    is_pre = bool(their.same("encoder_normalize_before", "decoder_normalize_before"))
    if is_pre:
        their.require("no_decoder_final_norm", False, "both stacks of our model end alike")
    for field in ("decoder_input_dim", "decoder_output_dim"):
        if field in values:
            their.same(field, "decoder_embed_dim")
    learned = bool(their.same("encoder_learned_pos", "decoder_learned_pos"))
    positions = "learned" if learned else "sinusoidal_t2t"
    if their["no_token_positional_embeddings"]:
        positions = "none"
    one = bool(their["share_all_embeddings"])
    tied = "three-way" if one else "decoder" if their["share_decoder_input_output_embed"] else "none"
    return their.model_config(
        vocab_size=target_size,
        source_vocab_size=None if source_size == target_size else source_size,
        d_model=their.same("encoder_embed_dim", "decoder_embed_dim"),
        d_ff=their.same("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
        num_heads=their.same("encoder_attention_heads", "decoder_attention_heads"),
        num_encoder_layers=their.layers("encoder_layers"),
        num_decoder_layers=their.layers("decoder_layers"),
        dropout=their["dropout"],
        attention_dropout=their["attention_dropout"],
        feed_forward_dropout=their["activation_dropout"] or values.get("relu_dropout") or 0.0,
        norm="pre" if is_pre else "post",
        final_norm=is_pre and ends_with_norm,
        activation=their.activation("activation_fn", known=ACTIVATIONS),
        attention_bias=True,
        positions=positions,
        max_positions=their.same("max_source_positions", "max_target_positions") if learned else 1_024,
        first_position=PAD + 1 if positions == "sinusoidal_t2t" else 0,
        tying=tied,
        embedding_scale=not their["no_scale_embedding"],
        embedding_norm=bool(their["layernorm_embedding"]),
        pad_id=PAD,
        bos_id=EOS,
        eos_id=EOS,
    )


def key_table(config: ModelConfig) -> KeyTable:
    """Return the tensors of a model."""
    config = resolved(config)
    rows = [*embedding_rows(config.tying, SOURCE, TARGET, _OUTPUT), *stack_rows(config, "")]
    copies = "copies of the layer's other tensors, which fairseq makes anew when it loads them"
    left_out = [
        *computed_positions(config, ""),
        *(
            LeftOut(f"encoder.layers.*.{module}_{kind}", copies)
            for module in ("in_proj", "out_proj", "fc1", "fc2")
            for kind in ("weight", "bias")
        ),
        LeftOut("*.version", "says of which form the file is"),
        LeftOut("*.embed_positions._float_tensor", "says of which type the numbers are"),
    ]
    return KeyTable(tuple(rows), tuple(left_out))


def ends_with_norm(state: Mapping[str, Tensor]) -> bool:
    """Tell whether a pre-norm model has final norms, which those of the first versions of the form have not."""
    version = state.get("decoder.version")
    return version is not None and version.numel() == 1 and version.item() > 2


def upgraded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of old files under their present names, and projections of attention apart."""
    norms = {
        "encoder": ("self_attn_layer_norm", "final_layer_norm"),
        "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    }
    upgraded: dict[str, Tensor] = {}
    for name, tensor in state.items():
        module, dot, kind = name.rpartition("_attn.in_proj_")
        if dot and tensor.dim():
            parts = zip("qkv", tensor.chunk(3), strict=False)
            upgraded |= {f"{module}_attn.{part}_proj.{kind}": one for part, one in parts}
            continue
        for number, norm in enumerate(norms.get(name.split(".")[0], ())):
            name = name.replace(f".layer_norms.{number}.", f".{norm}.")
        upgraded[_OUTPUT if name == "decoder.embed_out" else name] = tensor
    return upgraded
