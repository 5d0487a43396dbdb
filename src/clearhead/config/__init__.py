"""Every setting of every part, each with its one default, unit and source.

The sections are frozen pydantic models. Where a default is `None`, the words beside it say what that means. `preset`,
`tokenizer.vocab_size`, `train.learning_rate` and `train.max_steps` are then chosen when a run starts, and the run's
`config.toml` says what was chosen; `auto` stays there as it is, so that a run may go on where another device is. This
module imports no torch, so that reading a configuration is instant.
"""

from __future__ import annotations

from clearhead.choices import DecodePrecision
from clearhead.config.config import Config, parse_toml, read_toml
from clearhead.config.data import DataConfig
from clearhead.config.decode import MOST_SAMPLES, DecodeConfig, Sampling
from clearhead.config.model import ModelConfig
from clearhead.config.settings import MOST_STEPS
from clearhead.config.tokenizer import TokenizerConfig
from clearhead.config.train import TrainConfig

__all__ = [
    "MOST_SAMPLES",
    "MOST_STEPS",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "DecodePrecision",
    "ModelConfig",
    "Sampling",
    "TokenizerConfig",
    "TrainConfig",
    "parse_toml",
    "read_toml",
]
