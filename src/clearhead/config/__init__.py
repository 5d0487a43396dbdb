"""Every setting of every part, each with its one default, unit and source.

The sections are frozen pydantic models. Where a default is `None`, the words beside it say what that means. `preset`,
`tokenizer.vocab_size`, `train.learning_rate` and `train.max_steps` are then chosen when a run starts, and the run's
`config.toml` says what was chosen; `auto` stays there as it is, so that a run may go on where another device is. This
module imports no torch, so that reading a configuration is instant.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import model_validator

from clearhead.config.choices import DecodePrecision
from clearhead.config.decode import MOST_MBR_SAMPLES, MOST_SAMPLES, DecodeChanges, DecodeConfig, Sampling
from clearhead.config.model import ModelConfig
from clearhead.config.serve import ServeConfig
from clearhead.config.settings import Settings
from clearhead.config.text import DataConfig, TokenizerConfig
from clearhead.config.train import MOST_STEPS, TrainConfig
from clearhead.errors import ConfigError

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

NO_GOLDEN = "none"

MOST_TOML_CHARACTERS = 8 * 2**20
"""Longest configuration that is read."""


class Config(Settings):
    """All sections of one run."""

    preset: str | None = None
    """Named starting point for the other sections, such as `paper-base`; chosen from the corpus size if not set."""
    out: str | None = None
    """Run directory; running again with the same one resumes."""
    from_model: str | None = None
    """Model directory or run directory whose model training starts from instead of random weights (`--from`). Its
    shape and its tokenizer are the run's."""
    from_sha256: str | None = None
    """SHA-256 of that model's weights, which is found when the run starts; where it is set, another model is
    refused."""
    golden: str | None = None
    """Sentences that are kept in the model directory with their translations, so that `clearhead verify` can tell
    whether it still translates as it did: a file with one a line, or `none`. If not set they are made of words of the
    vocabulary, and no sentence of yours is there."""
    device: str = "auto"
    """`auto` (the first GPU, else the CPU), `cpu`, `cuda` or `cuda:1`."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    @model_validator(mode="after")
    def _weights_are_those_of_a_model(self) -> Self:
        if self.from_sha256 is not None and self.from_model is None:
            raise ValueError("from_sha256 says which weights are at from_model, so from_model must be set as well")
        return self

    @model_validator(mode="after")
    def _what_is_kept_was_there(self) -> Self:
        data = self.data
        if self.from_model is None and (data.general_source or data.general_target or data.general_pairs):
            raise ValueError(
                "general text (data.general_source and others) is what a model must not unlearn, so from_model must "
                "name one (--from)"
            )
        for name in ("freeze", "lora_rank"):
            if self.from_model is None and getattr(self.train, name):
                raise ValueError(
                    f"train.{name} keeps weights of the model that a run starts from; set from_model (--from)"
                )
        return self

    @model_validator(mode="after")
    def _text_fits_the_positions(self) -> Self:
        longest = self.model.max_length
        if longest is not None and self.data.max_length > longest:
            raise ValueError(
                f"data.max_length ({self.data.max_length}) must be at most model.max_positions ({longest}): every "
                f"token needs a position"
            )
        return self

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file, or the text of a pipe.

        Raises:
            ConfigError: If the file is missing, is not TOML, or breaks a rule.
        """
        return cls.from_dict(read_toml(path), origin=str(path))

    def to_toml(self) -> str:
        """Return every setting as TOML; unset ones are left out, for TOML has no null."""
        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file into plain nested values.

    Raises:
        ConfigError: If the file cannot be read or is not TOML.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"the path of a configuration must be text, not {type(path).__name__}")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_TOML_CHARACTERS + 1)
        if len(text) > MOST_TOML_CHARACTERS:
            raise ValueError(f"it is longer than {MOST_TOML_CHARACTERS:,} characters")
        return parse_toml(text)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: If it is not TOML, is nested too deep, or holds a number of thousands of digits.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
