"""Conversion of settings and tensors from and to Hugging Face transformers, and which kinds can hold a model.

The library transformers need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError, nearest_name
from clearhead.interop.huggingface.families import bart, bert, encoder_decoder, gpt2, t5
from clearhead.interop.key_table import KeyTable
from clearhead.interop.rewrites import (
    Rewrite,
    resolved,
    undone,
    with_attention_biases,
    with_feed_forward_biases,
    with_output_bias,
    with_sine_halves,
)


@dataclass(frozen=True)
class Family:
    """A model family of transformers."""

    config_from: Callable[[Mapping[str, Any]], ModelConfig]
    """Convert their `config.json` to our settings; a ConfigError names every field that our model cannot express."""
    config_to: Callable[[ModelConfig], dict[str, Any]]
    """Convert our settings to their `config.json`; reading it back shows what it cannot express."""
    key_table: Callable[[ModelConfig], KeyTable]
    """Return the key table of a model with these settings."""
    rewrites: tuple[Rewrite, ...]
    """Rewrites that bring our models closer to this family without changing a logit."""
    as_stored: Callable[[Mapping[str, Any], Mapping[str, Tensor]], Mapping[str, Any]] = lambda values, _: values
    """Adapt the fields of `config.json` to the stored tensors."""


BIASES: tuple[Rewrite, ...] = (with_attention_biases, with_feed_forward_biases)

FAMILIES: Mapping[str, Family] = {
    "bart": Family(
        bart.bart_config_from,
        partial(bart.config_to, "BartForConditionalGeneration", "bart"),
        bart.key_table,
        (*BIASES, with_output_bias),
    ),
    "bert": Family(bert.config_from, bert.config_to, bert.key_table, BIASES),
    "encoder-decoder": Family(
        encoder_decoder.config_from, encoder_decoder.config_to, encoder_decoder.key_table, (*BIASES, with_output_bias)
    ),
    "gpt2": Family(gpt2.config_from, gpt2.config_to, gpt2.key_table, BIASES),
    "m2m_100": Family(
        bart.m2m100_config_from,
        partial(bart.config_to, "M2M100ForConditionalGeneration", "m2m_100"),
        bart.key_table,
        BIASES,
    ),
    "marian": Family(
        bart.marian_config_from, bart.marian_config_to, bart.key_table, (*BIASES, with_output_bias, with_sine_halves)
    ),
    "mbart": Family(
        bart.mbart_config_from,
        partial(bart.config_to, "MBartForConditionalGeneration", "mbart"),
        bart.key_table,
        (*BIASES, with_output_bias),
    ),
    "pegasus": Family(
        bart.pegasus_config_from,
        partial(bart.config_to, "PegasusForConditionalGeneration", "pegasus"),
        bart.key_table,
        (*BIASES, with_output_bias, with_sine_halves),
    ),
    "t5": Family(t5.config_from, t5.config_to, t5.key_table, (), as_stored=t5.as_stored),
    "mt5": Family(t5.mt5_config_from, t5.mt5_config_to, t5.key_table, (), as_stored=t5.as_stored),
}
"""Model families by the `model_type` in `config.json`; a model is exported as the first one that can express it."""

NOT_KNOWN = {"umt5": "every layer has relative positions of its own there, and all layers of a stack the same here"}
"""Unsupported kinds of model that resemble a supported one, with the feature that ours lacks."""

NOT_COMPARED = {"dropout", "attention_dropout", "feed_forward_dropout", "num_placeholders"}
"""Settings that an export need not keep: those of training, and `num_placeholders`, which the vocabulary has."""


def import_state(
    model_type: str, their_config: Mapping[str, Any], their_state: Mapping[str, Tensor]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Convert one of their models to our settings and tensors, for `clearhead.files.tensors.load_tensors`.

    Args:
        model_type: Their name of the kind of model.
        their_config: The fields of `config.json`.
        their_state: All tensors of the model, from a file or a state dict.

    Raises:
        ConfigError: If the kind is unknown, or naming every field that our model cannot express.
        ModelError: Listing every tensor that is missing, unknown, or contradicts another.
    """
    family = family_of(model_type)
    config = family.config_from(family.as_stored(their_config, their_state))
    return config, family.key_table(config).from_theirs(their_state, origin=f"this {model_type} model")


def import_parts(
    encoder: tuple[Mapping[str, Any], Mapping[str, Tensor]], decoder: tuple[Mapping[str, Any], Mapping[str, Tensor]]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Convert a separate encoder and decoder to the settings and tensors of one model; see `import_state`.

    Args:
        encoder: The fields of its `config.json`, and its tensors, such as those of a BertGenerationEncoder.
        decoder: The same for a decoder that attends to the encoder's output, such as a BertGenerationDecoder.

    Raises:
        ConfigError: Naming every field that our model cannot express.
        ModelError: Listing every tensor that is missing, unknown, or contradicts another.
    """
    (encoder_config, encoder_state), (decoder_config, decoder_state) = encoder, decoder
    state = {f"encoder.{name}": tensor for name, tensor in encoder_state.items()}
    state |= {f"decoder.{name}": tensor for name, tensor in decoder_state.items()}
    return import_state("encoder-decoder", {"encoder": encoder_config, "decoder": decoder_config}, state)


def export_state(
    model_type: str, config: ModelConfig, tensors: Mapping[str, Tensor], *, computed: bool = False
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert one of our models to theirs with equal logits: the fields of `config.json`, and each tensor once.

    Args:
        model_type: Their name of the kind of model.
        config: Our settings.
        tensors: All tensors of our model, see `clearhead.files.tensors.model_tensors`.
        computed: Whether to add the tensors that their model computes itself; transformers warns if a file lacks them.

    Raises:
        ConfigError: If the kind is unknown, or naming every setting it cannot express and the kinds that can.
        ModelError: Listing every tensor that is missing or unknown.
    """
    family = family_of(model_type)
    if differences := _differences(family, config):
        others = exportable_as(config)
        advice = f"kinds that can: {', '.join(others)}" if others else "no kind of model we write can"
        raise ConfigError(f"a {model_type} model cannot hold this one: {'; '.join(differences)}; {advice}")
    for rewrite in family.rewrites:
        config, tensors = rewrite(config, tensors)
    table = family.key_table(config)
    state = table.to_theirs(tensors)
    if computed:
        computed_by = ((entry.pattern, entry.computed) for entry in table.left_out)
        state |= {name: computed.make(computed.rows) for name, computed in computed_by if computed is not None}
    return family.config_to(config), state


def restored_state(
    model_type: str, original: ModelConfig, config: ModelConfig, tensors: Mapping[str, Tensor]
) -> tuple[ModelConfig, dict[str, Tensor]] | None:
    """Undo `export_state`: restore the model before the export; None if exporting it again would give another model.

    Args:
        model_type: Their name of the kind of model.
        original: Our settings at the time of the export.
        config: Our settings as `import_state` reads them.
        tensors: Our tensors as `import_state` reads them; they may have been trained further.
    """
    try:
        restored = undone(original, family_of(model_type).rewrites, config, tensors)
        (values, state), (again, rewritten) = (
            export_state(model_type, *model) for model in ((config, tensors), restored)
        )
    except (ConfigError, ModelError):
        return None
    if (values, state.keys()) != (again, rewritten.keys()):
        return None
    return restored if all(torch.equal(rewritten[name], tensor) for name, tensor in state.items()) else None


def exportable_as(config: ModelConfig) -> list[str]:
    """Return each `model_type` that can express a model with these settings."""
    return [name for name, family in FAMILIES.items() if not _differences(family, config)]


def nearest_kind(config: ModelConfig) -> tuple[str, list[str]]:
    """Return the `model_type` that differs least from a model with these settings, and the differences."""
    differing = {name: _differences(family, config) for name, family in FAMILIES.items() if _has_sides_of(name, config)}
    kind = min(differing, key=lambda name: len(differing[name]))
    return kind, differing[kind]


def family_of(model_type: str) -> Family:
    """Return the family of a `model_type`.

    Raises:
        ConfigError: If the kind is unknown.
    """
    if model_type in NOT_KNOWN:
        raise ConfigError(f"models of the kind {model_type!r} cannot be expressed here: {NOT_KNOWN[model_type]}")
    if model_type not in FAMILIES:
        nearest = nearest_name(model_type, FAMILIES)
        raise ConfigError(f"models of the kind {model_type!r:.100} are not known here{nearest}")
    return FAMILIES[model_type]


def _has_sides_of(kind: str, config: ModelConfig) -> bool:
    match kind:
        case "bert":
            return config.num_decoder_layers == 0
        case "gpt2":
            return config.is_decoder_alone
        case _:
            return config.is_encoder_decoder


def _differences(family: Family, config: ModelConfig) -> list[str]:
    """Return what differs after writing the settings and reading them back, or why they cannot be read."""
    for rewrite in family.rewrites:
        config, _ = rewrite(config, {})
    try:
        back = family.config_from(family.config_to(config))
    except ConfigError as error:
        return str(error).removeprefix("this model cannot be expressed here: ").split("; ")
    ours, theirs = (resolved(settings).model_dump() for settings in (config, back))
    ignored = set(NOT_COMPARED)
    if config.positions != "learned":
        ignored.add("max_positions")  # computed positions have no limit
    if not config.positions.startswith("sinusoidal"):
        ignored.add("first_position")
    return [
        f"model.{name} is {ours[name]!r} ({theirs[name]!r} there)"
        for name in ours
        if ours[name] != theirs[name] and name not in ignored
    ]
