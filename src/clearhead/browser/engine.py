"""What a page in a browser needs of a model and of the core: settings, and where each field is in memory."""

from __future__ import annotations

import ctypes
from typing import Any

from clearhead.config import ModelConfig
from clearhead.config.known import COMMON, POSITIONS, Known
from clearhead.decoding.rules import never_written
from clearhead.kernels.structs import CONSTANTS, HEADER, NUMBERS, Struct, read_structures
from clearhead.model.weight_shapes import owner, weight_shapes

PAGE: Known = {
    **COMMON,
    "positions": (*POSITIONS, "none"),
}
"""The settings that `pages/web` computes, with the core and by itself."""

FORMS = ("relaxed", "simd", "plain")
"""Forms of the core in WebAssembly, the best first; a browser takes the best whose instructions it has."""

_KINDS = {number: kind for kind, number in NUMBERS.items()} | {ctypes.c_uint32: "address"}
_SHARED = ("target_embedding.weight", "output_proj.weight")
"""Matrices that may be stored under another name (section 3.4)."""


def engine_settings(config: ModelConfig) -> dict[str, Any]:
    """Return what `pages/web` needs beside the weights, as JSON values.

    Args:
        config: The settings of a model that `NativeEngine.supports`.

    Returns:
        `config`, the settings with those computed from them; `aliases`, other names of stored matrices; `layout`, the
        structures of the core in WebAssembly, with the offset and type of each field, and its constants.
    """
    computed = {
        "key_dim": config.key_dim,
        "value_dim": config.value_dim,
        "max_length": config.max_length,
        "never_written": never_written(config),
    }
    stored = weight_shapes(config)
    structs = read_structures(HEADER, ctypes.c_uint32)  # addresses have 32 bits there
    return {
        "config": config.model_dump(mode="json") | computed,
        "aliases": {name: owner(config, name) for name in _SHARED if name not in stored},
        "layout": {"structs": {name: _layout(struct) for name, struct in structs.items()}, "constants": CONSTANTS},
    }


def _layout(struct: type[Struct]) -> dict[str, Any]:
    fields = {
        name: (getattr(struct, name).offset, _KINDS.get(kind) or kind.__name__) for name, kind in struct._kinds.items()
    }
    return {"size": ctypes.sizeof(struct), "fields": fields}
