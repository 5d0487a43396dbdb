"""A model as it is stored, settings and weights, without PyTorch; its module is built when something needs it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.config import ModelConfig
from clearhead.config.choices import StoredPrecision
from clearhead.model.rounded_weights import RoundedWeights
from clearhead.model.weight_shapes import owner, weight_shapes
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.pytorch import needing_pytorch

if TYPE_CHECKING:
    from torch import nn

    from clearhead.model.transformer import Transformer


class StoredModel:
    """The settings and weights of a `Transformer`.

    Args:
        config: The settings.
        arrays: The weights in float32, by the names of `weight_shapes`; in float32 on request, if they are rounded.
    """

    def __init__(self, config: ModelConfig, arrays: Mapping[str, np.ndarray]) -> None:
        self.config = config
        self.arrays = arrays
        self._made: tuple[list[nn.Module], list[tuple[int, int]]] = [], []
        """The parts of the module, and their fingerprint when it was made; read and replaced together."""

    @classmethod
    def of(cls, model: Transformer | StoredModel) -> StoredModel:
        """Return a model with the weights of a module, not copied on the CPU; a stored model itself, if unchanged."""
        if isinstance(model, StoredModel):
            return cls(model.config, _arrays(model.module)) if model.is_changed else model
        return cls(model.config, _arrays(model))

    @property
    def precision(self) -> StoredPrecision | None:
        """Precision of the stored matrices; None for float32."""
        return self.arrays.precision if isinstance(self.arrays, RoundedWeights) else None

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a weight by any of its names, such as `output_proj.weight`."""
        return self.arrays[name if name in self.arrays else owner(self.config, name)]

    def get(self, name: str) -> np.ndarray | None:
        """Return a weight that is not shared; None if the model has no such weight."""
        return self.arrays.get(name)

    def num_parameters(self) -> int:
        """Return the number of weights; a shared matrix is counted once."""
        return sum(map(math.prod, weight_shapes(self.config).values()))

    @cached_property
    def module(self) -> Transformer:
        """The module with these weights, in evaluation mode.

        Raises:
            ClearheadError: If PyTorch is not installed.
        """
        with needing_pytorch("the module of a model"):
            import torch

        from clearhead.files.tensors import load_tensors
        from clearhead.model.transformer import Transformer

        # Weights made in inference mode could not be trained, and whoever counts on a seed asked for no random numbers.
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=()):
            # Draws weights that are overwritten (paper-base: 0.35 s), but keeps one constructor.
            model = Transformer(self.config)
            tensors = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
            load_tensors(model, tensors, origin="the stored model")
        if self.precision is None:
            self.arrays = _arrays(model)  # the same numbers, held once
        parts = list(model.modules())
        self._made = parts, fingerprint(parts)
        return model.eval()

    @property
    def is_changed(self) -> bool:
        """Whether the module was made, and its weights have been replaced or written to since."""
        parts, before = self._made
        return fingerprint(parts) != before

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: not the module, which would need PyTorch."""
        return {"config": self.config, "arrays": StoredModel.of(self).arrays, "_made": ([], [])}


def _arrays(model: Transformer) -> dict[str, np.ndarray]:
    return {name: parameter.numpy(force=True) for name, parameter in model.named_parameters()}


def fingerprint(modules: Sequence[nn.Module]) -> list[tuple[int, int]]:
    """Return a value that changes when modules or weights are replaced, or written to by PyTorch operations.

    It is computed at each call, so it reads the modules' own dictionaries. Iterating over `parameters` takes 0.2 ms
    more, a fifth of the time that translating one line needs besides its search.
    """
    parts = [(id(child), 0) for module in modules for child in module._modules.values()]
    weights = (weight for module in modules for weight in module._parameters.values() if weight is not None)
    return parts + [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]
