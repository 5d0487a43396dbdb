"""A model as it is stored, settings and weights, without PyTorch; its module is built when something needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import ModelConfig
from clearhead.model.weight_shapes import owner
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.pytorch import needing_pytorch

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


class StoredModel:
    """The settings and weights of a `Transformer`.

    Args:
        config: The settings.
        arrays: The weights in float32, by the names of `weight_shapes`.
    """

    def __init__(self, config: ModelConfig, arrays: Mapping[str, np.ndarray]) -> None:
        self.config = config
        self.arrays = arrays

    @classmethod
    def of(cls, model: Transformer | StoredModel) -> StoredModel:
        """Return a model with the weights of a module on the CPU, not copied; a stored model itself."""
        return model if isinstance(model, StoredModel) else cls(model.config, _arrays(model))

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a weight by any of its names, such as `output_proj.weight`."""
        return self.arrays[name if name in self.arrays else owner(self.config, name)]

    def get(self, name: str) -> np.ndarray | None:
        """Return a weight that is not shared; None if the model has no such weight."""
        return self.arrays.get(name)

    def num_parameters(self) -> int:
        """Return the number of weights; a shared matrix is counted once."""
        return sum(array.size for array in self.arrays.values())

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

        with torch.inference_mode(False), torch.no_grad():  # weights made in inference mode could not be trained
            # Draws weights that are overwritten (paper-base: 0.35 s), but keeps one constructor.
            model = Transformer(self.config)
            tensors = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
            load_tensors(model, tensors, origin="the stored model")
        self.arrays = _arrays(model)  # the same numbers, held once
        return model.eval()


def _arrays(model: Transformer) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
