"""A limit on the memory of this process, for libraries that unpack a file without one (Linux)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
