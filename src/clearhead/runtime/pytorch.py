"""PyTorch where it is imported already; the error where it, or another package of the extra `train`, is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from clearhead.errors import ClearheadError

_OF_THE_EXTRA = {
    "babel": "Babel",
    **{name: name for name in ("jaxtyping", "pyarrow", "tensorboardX")},
    "torch": "PyTorch",
}
"""Packages of the extra, and their names in messages."""


def imported_pytorch() -> ModuleType | None:
    """Return PyTorch if it has been imported completely, without importing it.

    While another thread imports it, for seconds, `sys.modules` has a module that lacks most of its functions.
    """
    torch = sys.modules.get("torch")
    is_complete = torch is not None and not getattr(torch.__spec__, "_initializing", False)
    return torch if is_complete else None


def has_pytorch() -> bool:
    """Return whether PyTorch can be imported; it is imported."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def require_pytorch(what: str) -> None:
    """Require that PyTorch can be imported; it is imported.

    Args:
        what: What needs it, as for `needing_pytorch`.

    Raises:
        ClearheadError: If it is not installed.
    """
    with needing_pytorch(what):
        import torch  # noqa: F401


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
        from clearhead.runtime.installation import pip_install

        raise ClearheadError(f"{what} needs {package}, which is not installed: {pip_install('train')}") from None
