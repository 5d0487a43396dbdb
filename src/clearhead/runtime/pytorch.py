"""The error where PyTorch is needed and not installed; it comes with the extra `train`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clearhead.errors import ClearheadError

_OF_THE_EXTRA = ("jaxtyping", "tensorboardX", "torch")
"""Packages of the extra."""


@contextmanager
def needing_pytorch(what: str) -> Iterator[None]:
    """Say what needs PyTorch if it is not installed and the block imports it.

    Args:
        what: What the block does, as the subject of a sentence.

    Raises:
        ClearheadError: If it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_THE_EXTRA:
            raise
        raise ClearheadError(f"{what} needs PyTorch, which is not installed: pip install 'clearhead[train]'") from None
