"""Finished steps of long work, kept in a directory with checksums, so that work that was ended continues.

A step is a file of its name: a checksum, the result of the step as JSON, and the checksums of other files that the step
has made, which are in the directory before. The first step, `origin`, is everything that determines the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from clearhead.errors import DataError
from clearhead.files.reading import file_sha256, os_error_as
from clearhead.files.writing import new_file, remove_directory, remove_leftovers


class FinishedSteps:
    """The finished steps in a directory; see `of`.

    Args:
        directory: Where they and their files are.
        say: Called with a line about steps that cannot be used.
    """

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.directory, self._say = directory, say
        self.are_kept = directory.exists()
        """Whether the directory stays if the block of `of` ends with an error; at first, if earlier work left it."""

    @classmethod
    @contextmanager
    def of(cls, directory: Path, origin: Mapping[str, Any], say: Callable[[str], None]) -> Iterator[FinishedSteps]:
        """Open the steps that earlier work of the same origin has finished; steps of another origin are removed.

        Only one process at a time may do so. The directory is removed when the block ends without an error, or with one
        unless `are_kept`.

        Args:
            directory: Where the steps are, or will be.
            origin: Everything that determines them, as JSON values by name; empty if that is not known.
            say: Called with a line about steps that cannot be used.

        Raises:
            DataError: If a file of a step is there and cannot be read.
            OSError: If the directory cannot be changed.
        """
        steps = cls(directory, say)
        is_done = False
        try:
            steps._begin(json.loads(json.dumps(origin)))
            yield steps
            is_done = True
        finally:
            if is_done or not steps.are_kept:
                remove_directory(directory)

    def _begin(self, origin: dict[str, Any]) -> None:
        before, damaged = self._load("origin")
        if origin and before == origin:
            remove_leftovers(self.directory)
            return
        if self.directory.exists():
            unknown = f"{damaged} is damaged" if damaged else "it is not known whether they are of the same"
            why = differences(before, origin) if before and origin else [unknown]
            self._say(f"the finished parts in {self.directory} cannot be used, and are made again: {'; '.join(why)}")
            shutil.rmtree(self.directory)
            self.are_kept = False
        self.directory.mkdir(parents=True)
        self.add("origin", origin)

    def get(self, name: str) -> Any:
        """Return the result of a step; None if it is not finished, or damaged, which is said.

        Raises:
            DataError: If a file of it is there and cannot be read.
            OSError: If a damaged file cannot be removed.
        """
        result, damaged = self._load(name)
        if damaged:
            self._say(f"{damaged} is damaged (not what its checksum says), and is made again")
            damaged.unlink(missing_ok=True)  # a link would be written through
        return result

    def _load(self, name: str) -> tuple[Any, Path | None]:
        """Return the result of a step, or None, and the file of it that is damaged, if one is."""
        path = self.directory / name
        with os_error_as(DataError, f"cannot read {path}"), suppress(FileNotFoundError):
            if path.is_symlink():
                return None, path
            checksum, _, rest = path.read_bytes().partition(b"\n")
            if checksum != _sha256(rest):
                return None, path
            step = json.loads(rest)
            for file, sha256 in step["files"].items():
                if not _is_whole(self.directory / file, sha256):
                    return None, self.directory / file
            return step["result"], None
        return None, None

    def add(self, name: str, result: Any, files: Mapping[str, str] | None = None) -> None:
        """Keep a finished step.

        Args:
            name: Its name.
            result: A JSON value other than null.
            files: SHA-256 of the files that it has made, by their names in the directory.

        Raises:
            OSError: If it cannot be written.
        """
        rest = json.dumps({"result": result, "files": files or {}}).encode("ascii")
        with new_file(self.directory / name) as new:
            new.write_bytes(_sha256(rest) + b"\n" + rest)

    def remove(self, name: str, files: Iterable[str]) -> None:
        """Remove a step, and files that it has made.

        Raises:
            OSError: If they cannot be removed.
        """
        for path in (str(self.directory / name), *files):
            os.unlink(path)

    def sha256(self, name: str) -> str:
        """Return the checksum of a finished step, which depends on its result and its files alone.

        Raises:
            OSError: If it cannot be read.
        """
        with open(self.directory / name, "rb") as file:
            return file.readline().decode("ascii").strip()


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each value that has changed, by name."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [f"{name} was {before.get(name)!r:.80} and now is {now.get(name)!r:.80}" for name in names]


def _is_whole(path: Path, sha256: str) -> bool:
    with os_error_as(DataError, f"cannot read {path}"):
        try:
            return not path.is_symlink() and file_sha256(path) == sha256
        except FileNotFoundError:
            return False


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode("ascii")
