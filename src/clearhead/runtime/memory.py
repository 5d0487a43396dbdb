"""Memory of a device and of this process, and limits on what this process takes of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform.startswith("linux"):
    import resource


@contextmanager
def limited_memory(num_bytes: int) -> Iterator[None]:
    """Let this process take at most `num_bytes` more memory within the block; without effect on other systems.

    Allocations beyond it fail, in all threads, as on a machine whose memory is full: a library raises `MemoryError`.
    Only one thread at a time may use it, because the limit is the process's.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    usual, most = resource.getrlimit(resource.RLIMIT_DATA)
    taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    limits = [taken + num_bytes, *(limit for limit in (usual, most) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (usual, most))


def device_memory(device: str) -> int | None:
    """Return the bytes of memory of a device: of a GPU, or of this machine or its container; None if it is unknown.

    Args:
        device: `cpu`, `cuda` or `cuda:1`.
    """
    if device != "cpu":
        import torch

        return torch.cuda.get_device_properties(device).total_memory if torch.cuda.is_available() else None
    if not sys.platform.startswith("linux"):
        return None
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _LIMITS_OF_CONTAINERS:
        with suppress(OSError, ValueError):  # not in a container, or one without a limit ("max")
            limits.append(int(Path(path).read_text()))
    return min(limits)


def process_memory() -> int:
    """Return the bytes of memory that this process has now (RSS); where it is not known, what it has after imports."""
    if not sys.platform.startswith("linux"):
        return _AFTER_IMPORTS
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


_AFTER_IMPORTS = 600_000_000


@contextmanager
def limited_gpu_memory(device: str, num_bytes: int | None) -> Iterator[None]:
    """Let PyTorch take at most so many bytes of a GPU within the block; beyond them it raises `torch.OutOfMemoryError`.

    Args:
        device: As for `device_memory`; on the CPU nothing is limited.
        num_bytes: The limit; None for none.
    """
    total = None if num_bytes is None or device == "cpu" else device_memory(device)
    if num_bytes is None or total is None:
        yield
        return
    import torch

    index = torch.device(device).index  # None is the current GPU, which this function does not know as "cuda"
    torch.cuda.set_per_process_memory_fraction(min(1.0, num_bytes / total), index)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, index)


_LIMITS_OF_CONTAINERS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
