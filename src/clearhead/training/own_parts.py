"""Parts of a training run that a Python program brings along: a model and a loss of its own.

Their code is not in the run, so every command or program that continues it must bring the same parts again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.choices import OwnPart
from clearhead.errors import ConfigError
from clearhead.model.own_model import OwnModel, make_model
from clearhead.model.transformer import Transformer
from clearhead.model.weight_shapes import require_listed

LossFunction = Callable[[Float[Tensor, "N V"], Int[Tensor, " N"], float], tuple[Float[Tensor, ""], Float[Tensor, ""]]]
"""A function with the arguments and results of `loss.label_smoothed_cross_entropy`."""


@dataclass(frozen=True)
class OwnParts:
    """The own parts of a run; by default none."""

    model: OwnModel | None = None
    loss: LossFunction | None = None

    @property
    def names(self) -> tuple[OwnPart, ...]:
        """What the setting `train.own_parts` records."""
        given: dict[OwnPart, object] = {"model": self.model, "loss": self.loss}
        return tuple(name for name, part in given.items() if part is not None)

    def require(self, recorded: Sequence[OwnPart]) -> None:
        """Check that the parts are those that the run was started with.

        Raises:
            ConfigError: If a part is missing, or the run has none of its own.
        """
        if self.names == tuple(recorded):
            return
        if missing := [name for name in recorded if name not in self.names]:
            given = ", ".join(f"{name}=..." for name in recorded)
            raise ConfigError(
                f"this run has its own {' and '.join(missing)}, whose code is not in it (train.own_parts); go on in "
                f"Python: clearhead.train(config, {given})"
            )
        raise ConfigError(
            f"the run was started without its own {' and '.join(self.names)}; use another out, or fresh=True"
        )

    def make_model(self, config: ModelConfig) -> Transformer:
        """Return a new model; see `own_model.make_model`.

        Raises:
            ConfigError: If it is not one of these settings, or could not be read again.
        """
        model = make_model(self.model, config)
        if self.model is None:
            require_listed(config, {name: tuple(weight.shape) for name, weight in model.named_parameters()})
        return model


NO_OWN_PARTS = OwnParts()
