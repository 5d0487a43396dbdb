"""Detection of changed files and directories."""

from __future__ import annotations

from pathlib import Path

FileState = tuple[tuple[int, int, int], ...]


def file_state(path: Path) -> FileState | None:
    """Return a fingerprint that changes when a file, or a directory or its entries, is replaced or written.

    Returns None if the path does not exist or cannot be read.
    """
    try:
        states = [file.stat() for file in (path, *(sorted(path.iterdir()) if path.is_dir() else ()))]
    except OSError:
        return None
    return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)
