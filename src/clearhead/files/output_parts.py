"""Long work on lines, in shards: each finished part of the output is kept beside it, so that ended work continues.

The directory `OUTPUT.parts` holds the lines of the input (`lines.txt`), what they and their parts come from
(`origin.json`), and one file for each finished shard. A part appears whole by rename, is known by its checksum, and is
never made twice. When all are there, they are joined, and the directory is removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.errors import DataError
from clearhead.files.reading import json_sha256, os_error_as, read_json
from clearhead.files.writing import locked, new_file, remove_leftovers, write_json

SHARD_LINES = 2_000
"""Lines of a shard: enough to sort by length, few enough that little is lost with a process that is ended."""


class Shard(NamedTuple):
    """A range of lines, as a worker finds it on any machine that has the file at the same place."""

    number: int
    """Counted from 0."""
    name: str
    """Name of the file that the lines come from, for messages."""
    first: int
    """Number of its first line in that file, counted from 1."""
    num_lines: int
    path: str
    """The file that holds the lines."""
    offset: int
    """Where they begin in the file, in bytes."""
    size: int
    """Their bytes."""
    sha256: str

    def lines(self) -> list[str]:
        """Read the lines.

        Raises:
            DataError: If the file cannot be read, or has other lines there.
        """
        cannot = f"cannot read {self.path}, which must be there on every machine"
        with os_error_as(DataError, cannot), open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(self.size)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise DataError(f"{self.path} has other lines from {self.first:,} on than where the work began")
        return data.decode("utf-8").split("\n")[:-1]


class Part(NamedTuple):
    """What is finished of the output: that of one shard."""

    text: str
    details: Mapping[str, Any]
    """Counts and remarks for the end of the work, as JSON values."""

    def to_bytes(self, shard: Shard) -> bytes:
        """Return the content of its file: a line with a checksum, a line with the details, and the text."""
        rest = json.dumps(self.details).encode("ascii") + b"\n" + self.text.encode("utf-8")
        return _checksum(shard, rest) + b"\n" + rest

    @classmethod
    def from_bytes(cls, shard: Shard, data: bytes) -> Part | None:
        """Return the part in a file; None if it is damaged, or of other lines."""
        checksum, _, rest = data.partition(b"\n")
        if checksum != _checksum(shard, rest):
            return None
        details, _, text = rest.partition(b"\n")
        return cls(text.decode("utf-8"), json.loads(details))


def _checksum(shard: Shard, data: bytes) -> bytes:
    return hashlib.sha256(f"{shard.sha256} {shard.first}\n".encode() + data).hexdigest().encode()


class OutputParts:
    """The parts of an output, finished or not; see `of`.

    Args:
        directory: Where they are kept.
        shards: All shards of the input, in order.
    """

    def __init__(self, directory: Path, shards: list[Shard]) -> None:
        self.directory, self.shards = directory, shards

    @classmethod
    @contextmanager
    def of(
        cls,
        output: str,
        inputs: Iterable[tuple[str, Iterable[str]]],
        origin: Mapping[str, Any],
        shard_lines: int | None = None,
    ) -> Iterator[OutputParts]:
        r"""Read the input, and open the parts that an earlier run with the same input and origin has finished.

        Parts stay if the block ends with an error; otherwise, or if there are none, the directory is removed. One
        process at a time works on an output.

        Args:
            output: The output file.
            inputs: Names of files, and their lines, without `\n` in any of them.
            origin: Everything else that determines the output, as JSON values.
            shard_lines: Lines of a shard at most; None for `SHARD_LINES`.

        Raises:
            DataError: If the directory cannot be written, has parts of another input or origin, or is being used.
        """
        directory = Path(f"{Path(output).resolve()}.parts")
        cannot = f"cannot keep finished parts in {directory}"
        with ExitStack() as stack:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(directory / "origin.json", waits=False))
                remove_leftovers(directory)
            except BlockingIOError:
                raise DataError(f"another process is working on {directory}; wait for its end") from None
            except OSError as error:
                raise DataError(f"{cannot}: {error.strerror or error}") from None
            parts, is_whole = cls(directory, []), False
            try:
                with os_error_as(DataError, cannot):
                    parts.shards = _write_lines(inputs, directory / "lines.txt", shard_lines or SHARD_LINES)
                parts._require_origin(origin)
                yield parts
                is_whole = True
            finally:
                if is_whole or parts._is_empty():
                    parts._remove()

    def _require_origin(self, origin: Mapping[str, Any]) -> None:
        """Note the origin of new parts, or compare it with that of the parts that are there."""
        path = self.directory / "origin.json"
        checksum = json_sha256([each.sha256 for each in self.shards])
        lines = {"lines": sum(each.num_lines for each in self.shards), "sha256": checksum}
        now = json.loads(json.dumps({**origin, "input": lines}))
        if self._is_empty():
            with os_error_as(DataError, f"cannot write {path}"):
                write_json(path, now)
            return
        before = read_json(path, DataError)
        if changed := sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
            raise DataError(
                f"{self.directory} has finished parts of an output that was made with another {', '.join(changed)}; "
                f"repeat that command, or remove the directory to begin anew"
            )

    def path(self, shard: Shard) -> Path:
        """Return the file of the part of a shard."""
        return self.directory / f"part-{shard.number:08}"

    def get(self, shard: Shard) -> Part | None:
        """Return the part of a shard; None if it is not finished, or its file is damaged.

        Raises:
            DataError: If the file is there and cannot be read.
        """
        with os_error_as(DataError, f"cannot read {self.path(shard)}"), suppress(FileNotFoundError):
            return Part.from_bytes(shard, self.path(shard).read_bytes())
        return None

    def add(self, shard: Shard, part: bytes) -> None:
        """Keep the part of a shard, as `Part.to_bytes` returned it.

        Raises:
            DataError: If it is damaged, or cannot be written.
        """
        if Part.from_bytes(shard, part) is None:
            raise DataError(f"the part from line {shard.first:,} on was damaged on its way; the same command continues")
        with os_error_as(DataError, f"cannot write {self.path(shard)}"), new_file(self.path(shard)) as new:
            new.write_bytes(part)

    def __iter__(self) -> Iterator[tuple[Shard, Part]]:
        """Yield all shards with their parts, in order.

        Raises:
            DataError: If one is not there.
        """
        for shard in self.shards:
            if (part := self.get(shard)) is None:
                raise DataError(f"{self.path(shard)} was damaged or removed; the same command makes it again")
            yield shard, part

    def _is_empty(self) -> bool:
        return next(self.directory.glob("part-*"), None) is None

    def _remove(self) -> None:
        names = ("lines.txt", "origin.json", ".origin.json.lock")
        with suppress(OSError):  # a file that is not ours stays, and so does the directory
            for path in [*map(self.path, self.shards), *(self.directory / name for name in names)]:
                path.unlink(missing_ok=True)
            self.directory.rmdir()


def _write_lines(inputs: Iterable[tuple[str, Iterable[str]]], path: Path, shard_lines: int) -> list[Shard]:
    """Write the lines to a file, and return their shards."""
    shards, offset = list[Shard](), 0
    with new_file(path) as new, open(new, "wb") as file:
        for name, lines in inputs:
            first, rest = 1, iter(lines)
            while some := list(islice(rest, shard_lines)):
                data = "".join(line + "\n" for line in some).encode("utf-8")
                file.write(data)
                digest = hashlib.sha256(data).hexdigest()
                shards.append(Shard(len(shards), name, first, len(some), str(path), offset, len(data), digest))
                first, offset = first + len(some), offset + len(data)
    return shards
