"""A model as it is stored, settings and weights, without PyTorch; its module is built when something needs it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.config import ModelConfig
from clearhead.config.choices import StoredPrecision
from clearhead.errors import ModelError
from clearhead.model.rounded_weights import RoundedWeights
from clearhead.model.weight_shapes import owner, weight_shapes
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.pytorch import needing_pytorch

if TYPE_CHECKING:
    from clearhead.model.module_state import ModuleState
    from clearhead.model.transformer import Transformer


DAMAGED = "the model is damaged, or its training diverged"
"""What is said where a model computes no numbers."""


class StoredModel:
    """The settings and weights of a `Transformer`.

    Args:
        config: The settings.
        arrays: The weights in float32, by the names of `weight_shapes`; in float32 on request, if they are rounded.
    """

    def __init__(self, config: ModelConfig, arrays: Mapping[str, np.ndarray]) -> None:
        self.config = config
        self.arrays = arrays
        self._handed_out: ModuleState | None = None
        """The state of the module when it was handed out; None if nobody can have changed it."""

    @classmethod
    def of(cls, model: Transformer | StoredModel) -> StoredModel:
        """Return a model with the weights of a module, not copied on the CPU; a stored model itself, if unchanged.

        Raises:
            ModelError: If the module computes something else than its configuration says: its weights alone would be
                another model.
        """
        if isinstance(model, StoredModel):
            return cls.of(model.own_module) if model.is_changed else model
        from clearhead.model.module_state import departure

        if reason := departure(model):
            raise ModelError(
                f"this model is more than its settings and weights: {reason}; it cannot be saved, exported or computed "
                f"by the compiled core as it is"
            )
        return cls(model.config, module_arrays(model))

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

    @property
    def module(self) -> Transformer:
        """The module with these weights, in evaluation mode; from now on changes of it are noticed.

        Raises:
            ClearheadError: If PyTorch is not installed.
        """
        module = self.own_module
        if self._handed_out is None:
            from clearhead.model.module_state import ModuleState

            self._handed_out = ModuleState(module)
        return module

    @cached_property
    def own_module(self) -> Transformer:
        """The same module, for code of the package, which changes nothing in it.

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
            self.arrays = module_arrays(model)  # the same numbers, held once
        return model.eval()

    @property
    def is_changed(self) -> bool:
        """Whether the module was handed out, and anything in it has been replaced or written to since."""
        return self._handed_out is not None and not self._handed_out.is_current()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: not the module, which would need PyTorch."""
        return {"config": self.config, "arrays": StoredModel.of(self).arrays, "_handed_out": None}


def require_finite(arrays: Mapping[str, np.ndarray], *, origin: str) -> None:
    """Require that all weights are numbers, or every translation, score and explanation of the model is none.

    Args:
        arrays: The weights as `RoundedWeights.stored`, or in float32.
        origin: Where they come from, for the message.

    Raises:
        ModelError: Naming the first weight that is not.
    """
    for name, array in arrays.items():
        with np.errstate(all="ignore"):
            if array.dtype == np.uint16:  # bfloat16, whose largest exponent is kept for NaN and infinity
                is_finite = not ((array & 0x7F80) == 0x7F80).any()
            else:  # one pass, unless the sum is too large
                is_finite = bool(np.isfinite(array.sum()) or np.isfinite(array).all())
        if not is_finite:
            raise ModelError(f"{origin}: {name} holds NaN or infinity: {DAMAGED}")


def module_arrays(model: Transformer) -> dict[str, np.ndarray]:
    """Return the weights by name; a shared matrix once, if the configuration shares it.

    Raises:
        ModelError: If a weight is not in float32.
    """
    weights = dict(model.named_parameters(remove_duplicate=False))
    for name, weight in weights.items():
        if (kind := str(weight.dtype).removeprefix("torch.")) != "float32":
            raise ModelError(f"{name} is in {kind}, and models are stored in float32; call `model.float()` first")
    own = {name: weight for name, weight in weights.items() if owner(model.config, name) == name}
    others = {name: weight for name, weight in weights.items() if weight is not weights[owner(model.config, name)]}
    return {name: weight.numpy(force=True) for name, weight in {**own, **others}.items()}
