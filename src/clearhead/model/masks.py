"""Attention masks (paper section 3.2.3): boolean, True means *may attend*.

Shapes: B batch, T query length, S key length.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(ids: Int[Tensor, "B S"], pad_id: int) -> Bool[Tensor, "B S"]:
    """Return the mask of positions that hold a token: True where the id is not `pad_id`."""
    return ids != pad_id


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "T T"]:
    """Return the mask that lets each position attend to itself and to earlier positions.

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
