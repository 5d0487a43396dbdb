"""The configuration of a run: all sections in one model, checks between them, and reading and writing of TOML.

Every setting has its default, unit and source. The sections are frozen pydantic models. If a default is `None`, the
docstring of the setting explains its meaning. `preset`, `tokenizer.vocab_size`, `train.learning_rate` and
`train.max_steps` are then chosen when a run starts, and written to the run's `config.toml`; `auto` is kept there as
`auto`, so that the run can be resumed on another device.
This module does not import torch, so that reading a configuration is fast.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import model_validator

from clearhead.config.decode import DecodeConfig
from clearhead.config.model import ModelConfig
from clearhead.config.settings import Settings
from clearhead.config.text import DataConfig, TokenizerConfig
from clearhead.config.train import TrainConfig
from clearhead.errors import ConfigError

NO_GOLDEN = "none"

MOST_TOML_CHARACTERS = 8 * 2**20
"""Maximum length of a configuration file."""


class Config(Settings):
    """All sections of one run."""

    preset: str | None = None
    """Named preset that the other settings start from, such as `tiny`, `small`, `paper-base` or `table3-b-dk-16`;
    chosen from the corpus size if not set."""
    out: str | None = None
    """Run directory. Running `clearhead train` again with the same directory resumes the run."""
    from_model: str | None = None
    """Model directory or run directory of the model to start from, instead of random weights. The run uses the
    model's shape and tokenizer."""
    from_sha256: str | None = None
    """SHA-256 of the weights of `from_model`. The run determines it when it starts; if it is set already, a model with
    other weights is rejected."""
    golden: str | None = None
    """Golden sentences, which are stored in the model directory with their translations, so that `clearhead verify` can
    check that the model's translations have not changed: a file with one sentence per line, or `none`.

    If not set, sentences are made of words of the vocabulary, so that none of your text is stored."""
    device: str = "auto"
    """Device: `auto` (the first GPU, or the CPU if there is none), `cpu`, `cuda` or `cuda:1`."""
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
        if self.from_model is None and data.corrections:
            raise ValueError("data.corrections fine-tunes a trained model, so from_model must name one (--from)")
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
        """Read a TOML file or a pipe.

        Raises:
            ConfigError: If the file is missing, is not TOML, or breaks a rule.
        """
        return cls.from_dict(read_toml(path), origin=str(path))

    def to_toml(self) -> str:
        """Return all settings as TOML; unset ones are left out because TOML has no null."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


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
