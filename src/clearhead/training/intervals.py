"""Steps between validations, and between checkpoints: chosen by the length of a run and the work of a validation."""

from __future__ import annotations

import math
from typing import Any

import torch

from clearhead.config import Config
from clearhead.data.prepare import Prepared

INTERVALS = ("train.validate_every", "train.checkpoint_every")

_VALIDATIONS, _LEAST_STEPS_BETWEEN, _MOST_STEPS_BETWEEN = 8, 50, 500

_TRANSLATED = {"cpu": 1.0, "cuda": 30.0}
"""Work of a token that a validation translates, by type of device, in target tokens of training.

That of a CPU is measured (docs/recipes.md). That of a GPU is a guess: a step computes thousands of tokens at once, a
search one of each sentence.
"""
_SCORED = 1 / 3
"""Work of a token whose probability alone is computed, likewise: a forward pass, without the backward pass."""

_MOST_SHARE = {"cpu": 0.15, "cuda": 0.1}
"""Fraction of a run's work that validations should not exceed, by type of device."""
_LEAST_VALIDATIONS = 2


def intervals(steps: int, config: Config, data: Prepared, device: torch.device) -> dict[str, Any]:
    """Return the steps between validations, and between checkpoints, by dotted names of the settings.

    Both divide the run evenly, within bounds. On a GPU, and in a run that starts from a trained model, there are fewer
    validations if they would exceed their share of the work. Work is counted in tokens, not in seconds, so the same
    command chooses the same.

    Args:
        steps: Expected optimiser steps of the run.
        config: Settings of the run.
        data: Prepared pairs.
        device: Device for training.
    """
    usual = min(_MOST_STEPS_BETWEEN, max(_LEAST_STEPS_BETWEEN, steps // _VALIDATIONS))
    validate = usual
    if _is_limited(config, device):
        most = _MOST_SHARE[device.type]
        fitting = most / (1 - most) * steps * config.train.batch_tokens / _work(config, data, device)
        regular = max(_LEAST_VALIDATIONS, int(fitting) - _others(config))
        validate = max(usual, math.ceil(steps / regular))
    return dict(zip(INTERVALS, (validate, usual), strict=True))


def validation_share(steps: int, config: Config, data: Prepared, device: torch.device) -> str | None:
    """Return in words which fraction of a run's work its validations are, and why if it is more than it should be.

    None if it is not limited.

    Args:
        steps: Expected optimiser steps of the run.
        config: Settings of the run.
        data: Prepared pairs.
        device: Device for training.
    """
    if not _is_limited(config, device):
        return None
    regular = math.ceil(steps / config.train.validate_every)
    work = (regular + _others(config)) * _work(config, data, device)
    share = work / (work + steps * config.train.batch_tokens)
    said = f"{share:.0%} of the work"
    if share <= _MOST_SHARE[device.type] or regular > _LEAST_VALIDATIONS:  # more of them only if a user says so
        return said
    return (
        f"{said}: more than {_MOST_SHARE[device.type]:.0%}, because so short a run is validated "
        f"{regular + _others(config)} times; a lower train.validate_sentences or a longer run makes it less"
    )


def _is_limited(config: Config, device: torch.device) -> bool:
    return device.type != "cpu" or config.from_model is not None


def _others(config: Config) -> int:
    """Return the number of validations besides the regular ones: of the initial model, and of the average."""
    return (config.from_model is not None) + (config.train.average_last > 1)


def _work(config: Config, data: Prepared, device: torch.device) -> float:
    """Return the work of a validation in target tokens of training."""
    lengths = [pairs.target_lengths for pairs in (data.valid, data.general) if pairs is not None]
    translated = sum(int(of_pairs[: config.train.validate_sentences].sum()) for of_pairs in lengths)
    return _TRANSLATED[device.type] * translated + _SCORED * sum(of_pairs.sum() for of_pairs in lengths)
