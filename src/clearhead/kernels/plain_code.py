"""A switch to plain code: no fused kernel and no faster form of an operation, so that the readable code runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_PLAIN: ContextVar[bool] = ContextVar("_IS_PLAIN", default=False)


def is_plain() -> bool:
    """Return whether plain code alone is to run in this thread; never inside torch.compile, which it would break."""
    import torch  # not above: explanations are plain code without PyTorch too

    return not torch.compiler.is_compiling() and _IS_PLAIN.get()


@contextmanager
def plain_code(on: bool = True) -> Iterator[None]:
    """Run plain code alone in the block.

    Args:
        on: False changes nothing.
    """
    token = _IS_PLAIN.set(on or _IS_PLAIN.get())
    try:
        yield
    finally:
        _IS_PLAIN.reset(token)
