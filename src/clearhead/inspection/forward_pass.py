"""One pass of a model over one sentence, run again for whatever is asked of it.

Shapes: S source tokens, T tokens the decoder reads, D d_model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from clearhead.model.attention import AttentionWeights
from clearhead.model.residual import HiddenStates
from clearhead.model.transformer import Transformer

__all__ = ["AS_IT_IS", "ModelPass", "numbers"]

AS_IT_IS: dict[str, Any] = {"split": "never", "familiar": False, "place_markup": False, "shortlist": False}
"""Decode settings with which a line is read whole and as it is, and its translation is what the model itself writes."""


@dataclass(frozen=True, eq=False)
class ModelPass:
    """A model in evaluation mode, and what it reads."""

    model: Transformer
    source: Int[Tensor, "1 S"] | None
    """None for a decoder alone."""
    target: Int[Tensor, "1 T"] | None
    """What the decoder reads; None for an encoder alone."""
    target_ids: tuple[int, ...]
    """What it predicts at its last positions."""

    @torch.inference_mode()
    def run(self, weights: AttentionWeights | None = None) -> HiddenStates:
        """Run the model and return the states of every layer; `weights` takes in what every head attended to."""
        hidden, memory, mask = HiddenStates(), None, None
        if self.source is not None:
            memory, mask = self.model.encode(self.source, weights=weights, hidden=hidden.encoder)
        if self.target is not None:
            self.model.states(self.target, memory, mask, weights=weights, hidden=hidden.decoder)
        return hidden


def numbers(states: Sequence[Float[Tensor, "1 tokens D"]]) -> Float32[np.ndarray, "states tokens D"]:
    """Return the states of one sentence, as of `HiddenStates`, as one array."""
    return torch.cat(list(states)).float().cpu().numpy()
