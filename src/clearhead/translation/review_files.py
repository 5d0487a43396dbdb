"""The files of a review: the document as it was, the journal of the changes, and the document that is written.

What is written is made of the document as it was and of all changes; so that document is kept until the end: a hidden
copy of a document that is reviewed in place. A change is in the journal before it is in the document, and the journal
has the checksum of every version that is written before it is. So a killed review is continued without loss, and a
version of someone else is noticed and not overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clearhead.errors import ConfigError, DataError
from clearhead.files import file_sha256, locked, new_file, os_error_as
from clearhead.files.reading import file_version
from clearhead.files.streams import whole_or_absent
from clearhead.formats.document import Document
from clearhead.translation.journal import Journal, hidden_path, journal_path

_KEPT = "the changes of a review"
_WROTE = "wrote"
"""Key of the entries of the journal that are checksums."""


class ChangedOutsideError(DataError):
    """The document was changed by another program during its review."""


class ReviewFiles:
    """The open files of a review, see `open_review`.

    Args:
        path: The document to review.
        output: Path of the document that is written.
        options: What determines the segments of the document besides its bytes, as JSON values.

    Raises:
        DataError: If a file cannot be read or written, or belongs to something else.
    """

    def __init__(self, path: str, output: Path, options: Mapping[str, object]) -> None:
        self.path, self.output = path, output
        self.is_in_place = os.path.realpath(path) == str(output)
        self.source = _copy_path(output) if self.is_in_place else Path(path)
        """The document as it was, to be read."""
        journal = journal_path(output, "review")
        self.is_new = not journal.exists()
        """Whether nothing is in the journal."""
        if self.is_new and self.is_in_place:
            with os_error_as(DataError, f"cannot keep a copy of {path} in {self.source}"):
                _copy(Path(path), self.source)
        if not self.source.exists():
            raise DataError(
                f"{self.source}, the document as it was before the review in {journal}, is missing; put it back, or "
                f"move that journal away to begin anew with the document as it is"
            )
        original = _checksum(self.source)
        self._journal = Journal(journal, {"review": original, "options": options}, kept=_KEPT)
        if self._journal.is_foreign:
            raise DataError(
                f"{journal} is the journal of a review of another document, or of this one with other options; name "
                f"the document and options of that review, or move the journal away to begin anew"
            )
        entries = [json.loads(value) for value in self._journal.values]
        values = zip(self._journal.values, entries, strict=True)
        self.changes = [value for value, entry in values if _WROTE not in entry]
        """The changes of earlier sessions, as JSON."""
        self.changed = {entry["number"] for entry in entries if "number" in entry}
        """Numbers of the segments that earlier sessions changed."""
        self.num_damaged = self._journal.num_changed
        """Changes that cannot be read, because the journal is damaged."""
        self._present = _checksum(output)
        known = {original if self.is_in_place else None, *(entry.get(_WROTE) for entry in entries)}
        if self._present not in known:
            self._refuse_output()
        self._state = file_version(output)
        self._next = self._present
        """Checksum of the version that is being written; another thread may find it before `write` has returned."""

    @property
    def journal(self) -> Path:
        """Path of the journal."""
        return self._journal.path

    def _refuse_output(self) -> None:
        if self.is_new:
            raise DataError(f"{self.output} exists, and is not of an unfinished review; name another output")
        raise ChangedOutsideError(
            f"{self.output} was changed since its review, which would overwrite that; the review is in {self.journal}. "
            f"Put the version of the review back to continue, or move that journal away to begin anew"
        )

    def read(self, read: Callable[[str], Document]) -> Document:
        """Return the document as it was; errors name the document, not its copy.

        Args:
            read: Reads a path, such as `read_document`.
        """
        try:
            return read(str(self.source))
        except (ConfigError, DataError) as error:
            raise type(error)(str(error).replace(str(self.source), self.path)) from None

    def is_unchanged(self) -> bool:
        """Return whether the output is what the review read or wrote; its bytes count, not its date."""
        state = file_version(self.output)
        if state != self._state and _checksum(self.output) in (self._present, self._next):
            self._state = state
        return state == self._state

    def require_unchanged(self) -> None:
        """Make sure that nobody else has changed the output.

        Raises:
            ChangedOutsideError: If somebody has.
        """
        if not self.is_unchanged():
            raise ChangedOutsideError(
                f"{self.output} was changed by another program; it is not overwritten. What you did is in "
                f"{self.journal}; put the version of the review back to continue"
            )

    def add(self, entry: bytes) -> None:
        """Write an entry into the journal, and wait until it is on disk.

        Args:
            entry: A change, or the checksum of a version, as JSON.

        Raises:
            DataError: If it cannot be written.
        """
        self._journal.add([entry])
        self.is_new = False

    def write(self, data: bytes) -> None:
        """Write the output; it is replaced as a whole, and not at all if it would stay the same.

        Raises:
            ChangedOutsideError: If somebody else has changed it.
            DataError: If it cannot be written.
        """
        self.require_unchanged()
        checksum = hashlib.sha256(data).hexdigest()
        if checksum == self._present:
            return
        if checksum != self._next:  # otherwise the journal has it since an attempt that failed
            self.add(json.dumps({_WROTE: checksum}).encode())
            self._next = checksum
        with os_error_as(DataError, f"cannot write {self.output}"), whole_or_absent(str(self.output)) as written:
            written.write_bytes(data)
        self._present, self._state = checksum, file_version(self.output)

    def remove(self) -> None:
        """Remove what only an unfinished review in place needs: the journal and the copy of the document."""
        assert self.is_in_place
        self._journal.remove()
        self.source.unlink(missing_ok=True)


@contextmanager
def open_review(path: str, output: str | None, options: Mapping[str, object]) -> Iterator[ReviewFiles]:
    """Open the files of a review, which one process at a time can have.

    Args:
        path: The document to review.
        output: The document to write; None writes `path` itself.
        options: As in `ReviewFiles`.

    Raises:
        ChangedOutsideError: If the document was changed after an earlier session.
        DataError: If another process reviews it; or as `ReviewFiles`.
    """
    final = Path(os.path.realpath(output or path))
    lock = locked(journal_path(final, "review"), waits=False)
    try:
        lock.__enter__()
    except BlockingIOError:
        raise DataError(f"{final} is being reviewed by another process; end that one first") from None
    except OSError as error:
        raise DataError(f"cannot write beside {final}, where a review is kept: {error.strerror}") from None
    try:
        files = ReviewFiles(path, final, options)
        try:
            yield files
        finally:
            if files.is_new and files.is_in_place:
                files.source.unlink(missing_ok=True)
    finally:
        lock.__exit__(None, None, None)


def _copy_path(document: Path) -> Path:
    """Return the path of the copy of a document: a hidden file with its extension, by which its format is known."""
    return hidden_path(document, f".before-review.{document.name}", ending=document.suffix)


def _copy(document: Path, copy: Path) -> None:
    with new_file(copy, mode=stat.S_IMODE(document.stat().st_mode)) as new:
        shutil.copyfile(document, new)


def _checksum(path: Path) -> str | None:
    """Return the checksum of a file; None if there is none."""
    try:
        return file_sha256(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
