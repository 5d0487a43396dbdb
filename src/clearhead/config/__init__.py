"""Settings: of a run (`Config`) and its sections, of decoding, of a server; each is imported when it is first used.

This package does not import torch, so that reading a configuration is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.config.choices import DecodePrecision
    from clearhead.config.decode import MOST_MBR_SAMPLES, MOST_SAMPLES, DecodeChanges, DecodeConfig, Sampling
    from clearhead.config.model import ModelConfig
    from clearhead.config.run import NO_GOLDEN, Config, parse_toml, read_toml
    from clearhead.config.serve import ServeConfig
    from clearhead.config.text import DataConfig, TokenizerConfig
    from clearhead.config.train import MOST_STEPS, TrainConfig

__all__ = [
    "MOST_MBR_SAMPLES",
    "MOST_SAMPLES",
    "MOST_STEPS",
    "NO_GOLDEN",
    "Config",
    "DataConfig",
    "DecodeChanges",
    "DecodeConfig",
    "DecodePrecision",
    "ModelConfig",
    "Sampling",
    "ServeConfig",
    "TokenizerConfig",
    "TrainConfig",
    "parse_toml",
    "read_toml",
]

_HOMES = {
    "DecodePrecision": "choices",
    **dict.fromkeys(("MOST_MBR_SAMPLES", "MOST_SAMPLES", "DecodeChanges", "DecodeConfig", "Sampling"), "decode"),
    "ModelConfig": "model",
    **dict.fromkeys(("NO_GOLDEN", "Config", "parse_toml", "read_toml"), "run"),
    "ServeConfig": "serve",
    **dict.fromkeys(("DataConfig", "TokenizerConfig"), "text"),
    **dict.fromkeys(("MOST_STEPS", "TrainConfig"), "train"),
}
"""Name to the file that defines it."""


if not TYPE_CHECKING:  # with it, a type checker would accept every name

    def __getattr__(name: str) -> Any:  # not by `runtime.lazy`, which is on the same floor
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
