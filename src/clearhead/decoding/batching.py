"""Length-sorted batches, and the error message for an out-of-memory device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clearhead.errors import DeviceError
from clearhead.runtime.pytorch import imported_pytorch


@contextmanager
def advice_on_memory(batch_tokens: int) -> Iterator[None]:
    """Turn an out-of-memory error into a `DeviceError` that suggests a smaller batch.

    Raises:
        DeviceError: If the device ran out of memory.
    """
    try:
        yield
    except _out_of_memory():
        raise DeviceError(
            f"the device ran out of memory; lower decode.batch_tokens ({batch_tokens}), for example "
            f"--batch-tokens {max(1, batch_tokens // 4)}"
        ) from None


def _out_of_memory() -> tuple[type[BaseException], ...]:
    """Return the errors of full memories: PyTorch's too, if it is in use."""
    torch = imported_pytorch()
    return (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)


def length_batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices, longest sentence first, of at most `batch_tokens` padded tokens (or one sentence)."""
    batch: list[int] = []
    # Longest first, so that a batch that is too big for the memory fails at once, not after an hour.
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
