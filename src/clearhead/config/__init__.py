"""Settings: of a run (`Config`) and its sections, of decoding, of a server; each is imported when it is first used.

This package does not import torch, so that reading a configuration is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clearhead.runtime.lazy import lazy_names

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

__getattr__ = lazy_names(
    __name__,
    {
        "DecodePrecision": "choices",
        **dict.fromkeys(("MOST_MBR_SAMPLES", "MOST_SAMPLES", "DecodeChanges", "DecodeConfig", "Sampling"), "decode"),
        "ModelConfig": "model",
        **dict.fromkeys(("NO_GOLDEN", "Config", "parse_toml", "read_toml"), "run"),
        "ServeConfig": "serve",
        **dict.fromkeys(("DataConfig", "TokenizerConfig"), "text"),
        **dict.fromkeys(("MOST_STEPS", "TrainConfig"), "train"),
    },
)
