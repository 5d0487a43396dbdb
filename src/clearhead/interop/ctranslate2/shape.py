"""Model settings and tensors from the variables of a CTranslate2 Transformer."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ModelError
from clearhead.interop.ctranslate2.attention import numbers_read, read_attention
from clearhead.interop.ctranslate2.model_bin import ModelBin
from clearhead.interop.ctranslate2.table import ACTIVATIONS, OUTPUT, SOURCE, TARGET, key_table
from clearhead.interop.key_table import TYINGS
from clearhead.interop.readers.foreign_config import TheirConfig
from clearhead.model.positions import sinusoidal_positions

DEFAULTS: Mapping[str, Any] = {
    f"{side}/{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"activation": 0, "num_heads": 8, "pre_norm": 1, "scale_embeddings": 1}.items()
}
"""Defaults of CTranslate2 for scalars that a file omits."""

_NOTHING = {"alibi": 0, "multi_query_attention": 0, "num_heads_kv": 0, "sliding_window": 0}
"""Required values of scalars for features that our model does not have."""
_NO_MATTER = {
    "alibi_use_positive_positions": "of ALiBi",
    "alignment_heads": "of the alignments that are given out",
    "alignment_layer": "likewise",
    "embeddings_merge": "of several embeddings",
    "scale_alibi": "of ALiBi",
    "start_from_zero_embedding": "read where the vocabulary is",
}
"""Scalars that do not affect the translations of an accepted model, with the reason."""
_MOST_FIRST = 8
"""Upper bound (exclusive) of the first position in the search for sinusoids; fairseq's begin at 2."""
_LAYOUTS: Any = ("sinusoidal", "sinusoidal_halves", "sinusoidal_t2t")
_FEED_FORWARD = "encoder/layer_0/ffn/linear_0/weight"
_ENCODINGS = "position_encodings/encodings"
_OUTPUT_SCALE = "decoder/scale_outputs"


def read_variables(file: ModelBin, epsilon: float | None, origin: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return our tensors, and the `[model]` settings except those of the vocabulary.

    Args:
        file: Content of `model.bin`.
        epsilon: `layer_norm_epsilon` of `config.json`; None for CTranslate2's default.
        origin: Path of `model.bin`, for messages.

    Raises:
        ConfigError: Naming every variable that our model cannot express.
        ModelError: Listing every variable that is missing, unknown, or of another shape.
    """
    tensors = file.tensors
    for name in (SOURCE, TARGET, OUTPUT, _FEED_FORWARD):
        if name not in tensors or tensors[name].dim() != 2:
            raise ModelError(f"{origin} has no matrix {name}: it is no encoder and decoder that can be read here")
    their = TheirConfig(file.attributes, DEFAULTS)
    settings = _settings(their, file.attributes, tensors, epsilon)
    _refuse_others(their, file.attributes, numbers_read(settings["num_encoder_layers"], settings["num_decoder_layers"]))
    config = their.model_config(**settings)
    is_computed = config.positions.startswith("sinusoidal")
    computed = (f"encoder/{_ENCODINGS}", f"decoder/{_ENCODINGS}") if is_computed else ()
    left = {name: tensor for name, tensor in tensors.items() if name not in computed}
    return settings, key_table(config).from_theirs(left, origin=str(origin))


def _settings(
    their: TheirConfig, attributes: Mapping[str, Any], tensors: Mapping[str, Tensor], epsilon: float | None
) -> dict[str, Any]:
    is_pre = bool(their.same("encoder/pre_norm", "decoder/pre_norm"))
    has_final_norm = _on_both(their, tensors, "layer_norm/gamma")
    number = their.same("encoder/activation", "decoder/activation")
    if number not in range(len(ACTIVATIONS)):
        known = ", ".join(f"{number} {name}" for number, name in enumerate(ACTIVATIONS.values()))
        their.problems.append(f"encoder/activation is {number!r}; those we have: {known}")
        number = 0
    is_rms = not any(name.endswith("/beta") for name in tensors)
    source, target, output = (tensors[name] for name in (SOURCE, TARGET, OUTPUT))
    shape = {
        "d_model": source.size(1),
        "num_heads": their.same("encoder/num_heads", "decoder/num_heads"),
        "num_encoder_layers": _layers(tensors, "encoder"),
        "num_decoder_layers": _layers(tensors, "decoder"),
    }
    attention = read_attention(their, attributes, tensors, **shape)
    return {
        **shape,
        "d_ff": tensors[_FEED_FORWARD].size(0),
        "norm": "pre" if is_pre else "post",
        "norm_kind": "rms" if is_rms else "layer",
        "norm_eps": (1e-6 if is_rms else 1e-5) if epsilon is None else epsilon,
        "final_norm": None if has_final_norm == is_pre else has_final_norm,
        "activation": list(ACTIVATIONS)[number],
        "gated": any("/ffn/linear_0_noact/" in name for name in tensors),
        "attention_bias": any(re.search(r"attention/linear_\d/bias$", name) for name in tensors),
        "feed_forward_bias": any("/ffn/" in name and name.endswith("/bias") for name in tensors),
        "output_bias": "decoder/projection/bias" in tensors,
        "embedding_norm": _on_both(their, tensors, "layernorm_embedding/gamma"),
        "embedding_scale": _is_scaled(their, source.size(1)),
        "output_scale": _divides_output(their, attributes, source.size(1)),
        "tying": TYINGS[torch.equal(source, target), torch.equal(target, output)],
        **({} if "positions" in attention else _positions(their, tensors, source.size(1))),
        **attention,
    }


def _on_both(their: TheirConfig, tensors: Mapping[str, Tensor], name: str) -> bool:
    """Return whether encoder and decoder have a variable; record a problem if only one of them has it."""
    here, there = (f"{side}/{name}" in tensors for side in ("encoder", "decoder"))
    if here != there:
        their.problems.append(f"{'encoder' if here else 'decoder'}/{name} is there, and on the other side it is not")
    return here


def _layers(tensors: Mapping[str, Tensor], side: str) -> int:
    return len({match[1] for name in tensors if (match := re.match(rf"{side}/layer_(\d+)/", name))})


def _is_scaled(their: TheirConfig, d_model: int) -> bool:
    """Return whether embeddings are multiplied by sqrt(d_model).

    In the file an integer is a flag, and a float is the factor itself.
    """
    value = their.same("encoder/scale_embeddings", "decoder/scale_embeddings")
    if isinstance(value, int):
        return bool(value)
    if value == 1.0:
        return False
    if not math.isclose(value, math.sqrt(d_model), rel_tol=1e-4):
        their.problems.append(f"encoder/scale_embeddings is {value:g}, neither 1 nor sqrt({d_model})")
    return True


def _divides_output(their: TheirConfig, attributes: Mapping[str, Any], d_model: int) -> bool:
    """Return whether the decoder states are divided by sqrt(d_model)."""
    value = attributes.get(_OUTPUT_SCALE, 1.0)
    if value == 1.0:
        return False
    if not math.isclose(value, d_model**-0.5, rel_tol=1e-4):
        their.problems.append(f"{_OUTPUT_SCALE} is {value:g}, and our model has 1 or 1/sqrt({d_model})")
    return True


def _positions(their: TheirConfig, tensors: Mapping[str, Tensor], d_model: int) -> dict[str, Any]:
    """Return the position settings.

    A table of positions is matched with known sinusoids; otherwise it is learned. Without a table, CTranslate2
    computes its own sinusoids.
    """
    if not _on_both(their, tensors, _ENCODINGS):
        return {"positions": "sinusoidal_t2t", "first_position": 1}
    tables = [tensors[f"{side}/{_ENCODINGS}"] for side in ("encoder", "decoder")]
    layout = _sinusoids(tables[0], d_model)
    rows = {table.size(0) for table in tables}
    if len(rows) > 1 or _sinusoids(tables[1], d_model) != layout:
        their.problems.append(f"encoder/{_ENCODINGS} and decoder/{_ENCODINGS} are not of one kind and length")
    return {**(layout or {"positions": "learned"}), "max_positions": min(rows)}


def _sinusoids(table: Tensor, d_model: int) -> dict[str, Any] | None:
    if table.shape[1:] != (d_model,) or d_model % 2:
        return None
    for layout in _LAYOUTS:
        for first in range(_MOST_FIRST):
            computed = sinusoidal_positions(len(table), d_model, layout, first=first)
            # Tables are stored in float32 or float16; a table of another formula would differ by about 1.
            if torch.allclose(table, computed, rtol=0.0, atol=1e-2):
                return {"positions": layout, "first_position": first}
    return None


def _refuse_others(their: TheirConfig, attributes: Mapping[str, Any], read: Collection[str]) -> None:
    """Record a problem for every scalar that is neither read nor known to have no effect."""
    for name in sorted(attributes):
        short = name.partition("/")[2]
        if short in _NOTHING:
            their.require(name, _NOTHING[short], "our model has no such thing")
        elif name not in (*DEFAULTS, _OUTPUT_SCALE, *read) and short not in _NO_MATTER:
            their.problems.append(f"{name} is {attributes[name]!r}, and our model has no such thing")
