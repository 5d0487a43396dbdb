"""Deterministic training on a GPU (`train.deterministic`): deterministic algorithms, and an error where there is none.

A CPU needs none of this: its steps are the same bits each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from clearhead.errors import TrainingError


@contextmanager
def deterministic(device: torch.device, *, is_asked_for: bool) -> Iterator[None]:
    """Let PyTorch choose deterministic algorithms on a GPU while the block runs; call it before the GPU is first used.

    The gradient of an embedding is then sorted instead of added in any order, in compiled steps too.

    Args:
        device: Device for training.
        is_asked_for: The setting `train.deterministic`.

    Raises:
        TrainingError: If an operation of the block has no deterministic algorithm.
    """
    if not is_asked_for or device.type == "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        what, has_none, _ = str(error).partition(" does not have a deterministic implementation")
        if not has_none:
            raise
        raise TrainingError(
            f"{what.splitlines()[-1]} has no deterministic algorithm on {device}; train without train.deterministic"
        ) from None
    finally:
        torch.use_deterministic_algorithms(before)
