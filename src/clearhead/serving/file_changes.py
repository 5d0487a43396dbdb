"""Whether a file or a directory is still the one that was read."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FileState", "file_state"]

FileState = tuple[tuple[int, int, int], ...]


def file_state(path: Path) -> FileState | None:
    """Return what changes when a file or a directory, or what is in it, is replaced or written; None without one."""
    try:
        found = [one.stat() for one in (path, *(sorted(path.iterdir()) if path.is_dir() else ()))]
    except OSError:
        return None
    return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)
