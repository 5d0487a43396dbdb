"""Attention masks (paper section 3.2.3): boolean, True means *may attend*.

Shapes: B batch, T query length, S key length.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["causal_mask", "padding_mask"]


def padding_mask(ids: Int[Tensor, "B S"], pad_id: int) -> Bool[Tensor, "B S"]:
    """Return which positions hold a token."""
    return ids != pad_id


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "T T"]:
    """Return the mask that lets each position attend to itself and to what stands before it.

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
