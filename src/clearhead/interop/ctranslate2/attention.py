"""Conversion of attention settings from and to CTranslate2's variables: head widths, scaling, positions.

CTranslate2 stores them in every attention; our model has one setting for all attentions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.readers.foreign_config import TheirConfig
from clearhead.model.other_positions import relative_bucket

BIAS = "relative_attention_bias"
"""Name of the table of relative positions; every layer of a stack has the same table."""
_DISTANCE = "relative_attention_max_distance"
_SCALE = "queries_scale"
_ROTARY = ("rotary_dim", "rotary_interleave", "rotary_base")
_LONGEST = 10_000
"""Largest distance between tokens for which bucket numbers are compared; longer attention is impractical."""


def attention_numbers(config: ModelConfig) -> dict[str, np.generic]:
    """Return the scale of the attention scores and the maximum relative distance, by variable name."""
    numbers: dict[str, np.generic] = {}
    by_default = (config.d_model // config.num_heads) ** -0.5
    scale = config.key_dim**-0.5 if config.attention_scale else 1.0
    for name in _attentions(config.num_encoder_layers, config.num_decoder_layers):
        if scale != by_default:
            numbers[f"{name}/{_SCALE}"] = np.float32(scale)
        if config.positions == "relative" and _is_self(name):
            numbers[f"{name}/{_DISTANCE}"] = np.int32(config.relative_attention_max_distance)
    return numbers


def numbers_read(num_encoder_layers: int, num_decoder_layers: int) -> set[str]:
    """Return the names of all scalar variables that `read_attention` reads."""
    return {
        f"{name}/{number}"
        for name in _attentions(num_encoder_layers, num_decoder_layers)
        for number in (_SCALE, *((_DISTANCE, *_ROTARY) if _is_self(name) else ()))
    }


def read_attention(
    their: TheirConfig,
    attributes: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    d_model: int,
    num_heads: int,
    num_encoder_layers: int,
    num_decoder_layers: int,
) -> dict[str, Any]:
    """Return the `[model]` settings stored in the attentions.

    `positions` is among them only for relative or rotary positions.

    Args:
        their: Configuration of the model; it collects the problems.
        attributes: The scalar variables, by name.
        tensors: The other variables, by name.
        d_model: Width of the model.
        num_heads: Heads of every attention.
        num_encoder_layers: Layers of the encoder.
        num_decoder_layers: Layers of the decoder.
    """
    names = _attentions(num_encoder_layers, num_decoder_layers)
    output = tensors.get(f"{names[0]}/linear_1/weight") if names else None
    if output is None or output.dim() != 2 or not 0 < num_heads <= min(d_model, output.size(1)):
        return {}  # a wrong tensor or setting, which is reported elsewhere
    settings: dict[str, Any] = {}
    width, by_default = int(output.size(1) // num_heads), (d_model // num_heads) ** -0.5
    if width * num_heads != d_model:
        settings |= {"d_k": width, "d_v": width}
    scales = {name: attributes.get(f"{name}/{_SCALE}", by_default) for name in names}
    is_scaled = math.isclose(scales[names[0]], width**-0.5, rel_tol=1e-4)
    their.problems += [
        f"{name}/{_SCALE} is {scale:g}, and our model has 1 or 1/sqrt({width}), in all layers the same"
        for name, scale in scales.items()
        if not math.isclose(scale, width**-0.5 if is_scaled else 1.0, rel_tol=1e-4)
    ]
    within = [name for name in names if _is_self(name)]
    if any(f"{name}/{BIAS}" in tensors for name in within):
        settings |= _relative(their, attributes, tensors, within)
    elif any(f"{name}/rotary_dim" in attributes for name in within):
        settings |= _rotary(their, attributes, within, width)
    return {**settings, "attention_scale": is_scaled}


def _relative(
    their: TheirConfig, attributes: Mapping[str, Any], tensors: Mapping[str, Tensor], names: Sequence[str]
) -> dict[str, Any]:
    """Return the settings of relative positions, which must be present and equal in all layers."""
    lacking = [f"{name}/{BIAS}" for name in names if f"{name}/{BIAS}" not in tensors]
    lacking += [f"{name}/{_DISTANCE}" for name in names if f"{name}/{_DISTANCE}" not in attributes]
    if lacking:
        their.problems.append(f"{', '.join(lacking[:4])} {'is' if len(lacking) == 1 else 'are'} missing")
        return {}
    first, *others = names
    distance, buckets = attributes[f"{first}/{_DISTANCE}"], len(tensors[f"{first}/{BIAS}"])
    their.problems += [
        f"{first}/{_DISTANCE} ({distance!r}) and {name}/{_DISTANCE} ({own!r}) must be equal"
        for name in others
        if (own := attributes[f"{name}/{_DISTANCE}"]) != distance
    ]
    if not isinstance(distance, int):
        their.problems.append(f"{first}/{_DISTANCE} is {distance!r}, but must be a whole number")
    elif (where := other_row(buckets, distance)) is not None:
        their.problems.append(f"{first}/{_DISTANCE} is {distance}: of {buckets} rows distance {where} has another here")
    return {
        "positions": "relative",
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": distance,
    }


def _rotary(their: TheirConfig, attributes: Mapping[str, Any], names: Sequence[str], width: int) -> dict[str, Any]:
    """Return the setting of rotary positions.

    All layers must have them, and they must rotate all pairs of neighbouring components.
    """
    if any(f"{name}/rotary_dim" not in attributes for name in names):
        their.problems += [
            f"{name}/rotary_dim is {attributes[f'{name}/rotary_dim']!r}, and our model has such positions everywhere"
            for name in names
            if f"{name}/rotary_dim" in attributes
        ]
        return {}
    wanted = {"rotary_dim": (0, width), "rotary_interleave": (1,), "rotary_base": (10_000,)}
    their.problems += [
        f"{name}/{number} is {value!r}, but must be {' or '.join(map(str, values))}: our model has no other"
        for name in names
        for number, values in wanted.items()
        if (value := attributes.get(f"{name}/{number}", values[0])) not in values
    ]
    return {"positions": "rotary"}


def other_row(num_buckets: int, max_distance: int) -> int | None:
    """Return a distance with another bucket in CTranslate2 than in T5; None for nearly all settings.

    T5 truncates the logarithm of a distance to an integer, then adds the number of single-distance buckets.
    CTranslate2 adds first, and float32 may round the sum up to an integer.

    Args:
        num_buckets: Rows of the tables of relative positions.
        max_distance: Distance from which on all distances share the last row.
    """
    if num_buckets < 4 or not num_buckets // 2 < max_distance:  # not valid settings
        return None
    distance = torch.arange(min(max_distance, _LONGEST))
    for is_causal in (True, False):
        rows = num_buckets if is_causal else num_buckets // 2
        single = rows // 2
        # C's float32 logarithm is the nearest one, as is a float64 logarithm cast to float32.
        # torch's float32 logarithm may be the neighbouring float.
        far, end = (_log(x / single) for x in (distance.float(), torch.tensor(float(max_distance))))
        theirs = (single + far / end * (rows - single)).long().clamp(max=rows - 1)
        ours = relative_bucket(-distance, num_buckets=num_buckets, max_distance=max_distance, is_causal=is_causal)
        differing = ((ours != theirs) & (distance >= single)).nonzero()
        if len(differing):
            return int(differing[0])
    return None


def _log(x: Tensor) -> Tensor:
    return x.double().log().float()


def _attentions(num_encoder_layers: int, num_decoder_layers: int) -> list[str]:
    encoder = [f"encoder/layer_{number}/self_attention" for number in range(num_encoder_layers)]
    decoder = [f"decoder/layer_{number}" for number in range(num_decoder_layers)]
    return [*encoder, *(f"{layer}/{kind}" for layer in decoder for kind in ("self_attention", "attention"))]


def _is_self(name: str) -> bool:
    return name.endswith("/self_attention")
