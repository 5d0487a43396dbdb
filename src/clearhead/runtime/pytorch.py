"""The error where a package of the extra `train`, such as PyTorch, is needed and not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clearhead.errors import ClearheadError

_OF_THE_EXTRA = {
    "babel": "Babel",
    **{name: name for name in ("jaxtyping", "pyarrow", "tensorboardX")},
    "torch": "PyTorch",
}
"""Packages of the extra, and their names in messages."""


def has_pytorch() -> bool:
    """Return whether PyTorch can be imported; it is imported."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


@contextmanager
def needing_pytorch(what: str) -> Iterator[None]:
    """Say what needs a package of the extra if it is not installed and the block imports it.

    Args:
        what: What the block does, as the subject of a sentence.

    Raises:
        ClearheadError: If it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = _OF_THE_EXTRA.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise ClearheadError(
            f"{what} needs {package}, which is not installed: pip install 'clearhead[train]'"
        ) from None
