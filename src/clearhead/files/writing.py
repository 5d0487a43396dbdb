"""Atomic writing of files and directories, and recovery or removal of what killed writers left.

A new file or directory is written next to its destination under a unique temporary name, flushed to disk, and then
renamed in one step. However the writer ends, readers find the old version, the new one or none.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

from clearhead.errors import ClearheadWarning

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.(?P<kind>partial|old)")
_LONGEST_START = 255 - len("..0123456789abcdef.partial")  # most file systems take names of 255 bytes
_CANNOT_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def is_standard_output(path: str | None) -> bool:
    """Return whether an output path is standard output: `None`, `-` or `/dev/stdout`."""
    # The link resolves to the file that the shell opened, and `>> file` would replace that file instead of appending.
    return path in (None, "-", "/dev/stdout")


def blocked_by(path: Path) -> Path | None:
    """Return the nearest existing path above one, if no file or directory can be made in it; otherwise None."""
    above = next(filter(os.path.exists, path.absolute().parents))
    return None if above.is_dir() and os.access(above, os.W_OK) else above


@contextmanager
def new_file(path: str | Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Create a file that appears under its name only when the block ends without an error.

    Its permissions are those of the file it replaces. If `path` is a link, its target is replaced.

    Args:
        path: The file's name; its directory must exist.
        mode: Permissions of a file that replaces none, less those of the umask.

    Yields:
        The temporary path to write to.

    Raises:
        OSError: If it cannot be written; nothing of it remains then.
    """
    final = Path(os.path.realpath(path))
    temporary = temporary_beside(final)
    try:
        temporary.touch(mode, exist_ok=False)
        mode = stat.S_IMODE((final if final.is_file() else temporary).stat().st_mode)
        yield temporary
        temporary.chmod(mode)  # safetensors creates files that only their owner can read
        _flush(temporary)
        os.replace(temporary, final)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    _flush(final.parent)


@contextmanager
def new_directory(path: str | Path, *, refuse: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Create a directory of files that appears under its name only when the block ends without an error.

    An existing directory is replaced. If the file system can exchange two names (most can on Linux and macOS), the name
    always refers to the old or the new directory; else it is missing for an instant, see `readable_version`.

    Args:
        path: The directory's name; missing parents are created.
        refuse: Called with the name right before an existing directory is replaced, because another program may have
            made or changed it since the work began; what it raises leaves that directory as it is.

    Yields:
        The temporary directory to fill.

    Raises:
        OSError: If it cannot be written; nothing of it remains then.
    """
    final = Path(os.path.realpath(path))
    temporary = temporary_beside(final)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.iterdir():  # some writers have flushed theirs; flushing twice costs nothing
            _flush(file)
        _flush(temporary)
        if refuse is not None:
            refuse(final)
        _put(temporary, final)
        _flush(final.parent)
    finally:
        remove_directory(temporary)  # now perhaps the old directory


def keep_others(old: Path, new: Path, replaced: Collection[str]) -> None:
    """Keep the files of a directory that another one replaces, which were put beside its own.

    Args:
        old: The directory; it need not exist.
        new: The directory that will replace it.
        replaced: Names that are not kept.

    Raises:
        OSError: If a file cannot be read or written.
    """
    for path in old.iterdir() if old.exists() else ():
        if path.name not in replaced and not is_leftover(path.name):
            link_or_copy(path, new / path.name)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file, or those in a directory, a second name, or copy it; files are replaced, never changed in place."""
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, copy_function=link_or_copy)
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def temporary_beside(final: Path) -> Path:
    """Return a new hidden name beside a file or directory; what a killed writer leaves there is a leftover."""
    start = final.name
    if len(os.fsencode(start)) > _LONGEST_START:
        start = os.fsencode(start)[:_LONGEST_START].decode("utf-8", "ignore")  # no half of a character
    return final.with_name(f".{start}.{secrets.token_hex(8)}.partial")


def replace_keeping_old(new: Path, final: Path) -> Path:
    """Put a finished directory in the place of an existing one, which is kept as `NAME.old-N`; return that path.

    If the file system can exchange two names, `final` always refers to the old or the new directory.

    Args:
        new: The new directory, on the same file system.
        final: The existing directory; not a link.

    Raises:
        OSError: If it cannot be done; both are where they were then.
    """
    number = 1
    while os.path.lexists(aside := final.with_name(f"{final.name}.old-{number}")):
        number += 1
    # First under the name that the old one will have: an exchange then leaves no moment at which the old one has a
    # temporary name, which is removed after a kill.
    os.rename(new, aside)
    is_exchanged = False
    try:
        is_exchanged = _exchange(aside, final)
    finally:
        if not is_exchanged:
            os.rename(aside, new)
    if is_exchanged:
        _flush(final.parent)  # if that fails, `aside` is the old one all the same, and stays
        return aside
    os.rename(final, aside)
    try:
        os.rename(new, final)
    except OSError:
        os.rename(aside, final)
        raise
    return aside


def open_own(path: str | Path, flags: int) -> IO[bytes]:
    """Open a file whose name this program chose, such as a lock or a journal; never through a link, or another file.

    Args:
        path: The file.
        flags: Flags of `os.open`.

    Raises:
        OSError: If it cannot be opened, or is a link, a pipe or another thing that is not a regular file.
    """
    if os.path.islink(path):  # also where the system has no flag for it
        raise OSError(errno.ELOOP, "it is a link to another file; remove it", str(path))
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # opening a pipe would wait
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it must be a regular file; remove it", str(path))
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    return os.fdopen(descriptor, "ab" if flags & os.O_APPEND else "r+b" if writes else "rb")


@contextmanager
def locked(path: str | Path, *, waits: bool = True) -> Iterator[None]:
    """Let one process at a time read, change and write a file; others wait. The lock is a hidden file beside it.

    Args:
        path: The file.
        waits: Whether to wait for another process that has the lock.

    Raises:
        BlockingIOError: If another process has the lock, and this one does not wait.
        OSError: If the lock cannot be made.
    """
    final = Path(os.path.realpath(path))
    with open_own(final.with_name(f".{final.name}.lock"), os.O_RDWR | os.O_CREAT) as file:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        else:  # waits for ten seconds
            import msvcrt

            kind = msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK  # type: ignore[attr-defined]
            try:
                msvcrt.locking(file.fileno(), kind, 1)  # type: ignore[attr-defined]
            except OSError as error:
                raise BlockingIOError(*error.args) from None
        yield


def write_text(path: str | Path, text: str) -> None:
    r"""Write a small text file in UTF-8, with `\n` as line ends.

    Raises:
        OSError: If it cannot be written.
    """
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as indented JSON.

    Raises:
        OSError: If it cannot be written.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def readable_version(path: Path) -> Path:
    """Return the path where a directory can be read: its own, or that of the old version if a writer was killed.

    Nothing is renamed, because the writer may still be running.
    """
    if path.name and not path.exists():
        final = Path(os.path.realpath(path)) if path.is_symlink() else path  # leftovers are next to a link's target
        for aside in final.parent.glob(f".{escape(final.name)}.*.old"):
            if (match := _LEFTOVER.fullmatch(aside.name)) and match["name"] == final.name:
                return aside
    return path


def remove_leftovers(directory: Path, names: Collection[str] | None = None) -> None:
    """Remove what killed writers left in a directory, and restore old versions that they had moved aside.

    Args:
        directory: The directory to clean.
        names: Names of the written files, which no other process may be writing now; None is all files.
    """
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _LEFTOVER.fullmatch(path.name)
        if match is None or (names is not None and match["name"] not in names):
            continue
        if match["kind"] == "old" and not (final := directory / match["name"]).exists():
            os.replace(path, final)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def is_leftover(name: str) -> bool:
    """Return whether a name is a temporary name that only a killed writer leaves."""
    return _LEFTOVER.fullmatch(name) is not None


def is_utf8(path: str | Path) -> bool:
    """Return whether a path is UTF-8; JSON and TOML cannot contain others, and few libraries open them."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _put(new: Path, final: Path) -> None:
    """Rename a finished directory to its final name; an old one moves to `new`, or is deleted."""
    try:
        os.rename(new, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        return
    if _exchange(new, final):
        return
    aside = final.with_name(f".{final.name}.{secrets.token_hex(8)}.old")
    os.rename(final, aside)  # if killed here, `readable_version` finds it
    os.rename(new, final)
    remove_directory(aside)


def remove_directory(directory: Path) -> None:
    """Remove a directory that is of no use any more; a warning names it if that fails, which changes nothing else."""
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        warnings.warn(f"{directory} is left over and could not be removed; remove it", ClearheadWarning, stacklevel=2)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names atomically; return False if the system or the file system cannot."""
    if os.name != "posix":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        here = -100  # AT_FDCWD; the flag is RENAME_EXCHANGE
        failed = library.renameat2(here, names[0], here, names[1], ctypes.c_uint(2))
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, ctypes.c_uint(2))  # RENAME_SWAP
    else:
        return False
    if failed and (code := ctypes.get_errno()) not in _CANNOT_EXCHANGE:
        raise OSError(code, os.strerror(code), str(second))
    return not failed


def _flush(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    if os.name != "posix" and path.is_dir():
        return  # only POSIX can flush a directory
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
