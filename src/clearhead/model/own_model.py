"""A model that a Python program brings along: a subclass of `Transformer`, or one whose parts were replaced."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from torch import nn

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.model.transformer import Transformer

OwnModel = Transformer | Callable[[ModelConfig], Transformer]
"""A module, which is copied, or a function that makes one, such as the class itself."""


def make_model(own: OwnModel | None, config: ModelConfig) -> Transformer:
    """Return a new model of these settings.

    Args:
        own: The program's model; None for a `Transformer`.
        config: The settings.

    Raises:
        ConfigError: If it is no `Transformer`, or one of other settings.
    """
    if own is None:
        return Transformer(config)
    model = deepcopy(own) if isinstance(own, nn.Module) else own(config)
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"model must be a clearhead.Transformer, or a function from a ModelConfig to one, such as a subclass; it "
            f"is or makes {type(model).__name__}"
        )
    if model.config != config:
        theirs, ours = model.config.model_dump(), config.model_dump()
        differ = [f"{name} = {theirs[name]!r}, not {value!r}" for name, value in ours.items() if theirs[name] != value]
        raise ConfigError(
            f"model has other settings: {'; '.join(differ)}; give its class, which is made with the right ones"
        )
    return model
