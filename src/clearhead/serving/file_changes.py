"""Detection of changed files and directories."""

from __future__ import annotations

from pathlib import Path

FileState = tuple[tuple[int, int, int], ...]


def file_state(path: Path) -> FileState | None:
    """Return a fingerprint that changes when a file, or a directory or its entries, is replaced or written.

    Returns None if the path does not exist or cannot be read.
    """
    try:
        found = [one.stat() for one in (path, *(sorted(path.iterdir()) if path.is_dir() else ()))]
    except OSError:
        return None
    return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)
