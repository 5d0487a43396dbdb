"""A repeatable forward pass of a model over one sentence, and decode settings that leave text unprocessed.

Shapes: S source tokens, T tokens the decoder reads, D d_model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int
    from torch import Tensor

    from clearhead.model.recorder import Recorder
    from clearhead.model.transformer import Transformer

AS_IT_IS: dict[str, Any] = {
    "split": "never",
    "familiar": False,
    "place_markup": False,
    "precision": "fp32",
    "shortlist": False,
    "raw": True,
}
"""Decode settings for raw input and output: no splitting, no normalization, no markup placement, no shortlist;
no rounding, as the recorded search and the steps have none."""


@dataclass(frozen=True, eq=False)
class ModelPass:
    """A model in evaluation mode, and its inputs."""

    model: Transformer
    source: Int[Tensor, "1 S"] | None
    """Source ids; None for a decoder alone."""
    target: Int[Tensor, "1 T"] | None
    """Ids that the decoder reads; None for an encoder alone."""
    target_ids: tuple[int, ...]
    """Ids predicted at the last positions."""

    def run(self, recorder: Recorder | None = None) -> None:
        """Run the model."""
        import torch

        from clearhead.model.recorder import NOTHING

        with torch.inference_mode():
            self.model.record(recorder or NOTHING, self.source, self.target)


def numbers(states: Sequence[Float[Tensor, "1 tokens D"]]) -> Float32[np.ndarray, "states tokens D"]:
    """Return a list of states of one sentence, as in `HiddenStates`, as one array."""
    return np.concatenate([state.float().numpy(force=True) for state in states])
