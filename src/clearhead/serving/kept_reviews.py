"""The reviews that a server keeps in a directory: begun from a translated document, and open while they are used.

A review is the directory `DIR/KEY`; its key, 128 random bits, is the only way to find it. A change is in its journal at
once (`translation.review_files`), so a server that is killed loses nothing.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Lock
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.types import ASGIApp

from clearhead.config import ServeConfig
from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.files import new_directory, new_file
from clearhead.formats.document import Document, Filling
from clearhead.formats.memory_database import EXTENSION
from clearhead.serving.admission import acquire
from clearhead.serving.batched_search import Job
from clearhead.serving.document_process import memory_of
from clearhead.serving.files import client_message, opened_upload
from clearhead.serving.http_errors import HTTPError, place_of, unavailable
from clearhead.serving.log import log_event
from clearhead.serving.model_choice import Choice
from clearhead.translation.correction_memory import CorrectionMemory
from clearhead.translation.documents import Status, TranslatedSegment
from clearhead.translation.memory import Lookup
from clearhead.translation.result import Translation
from clearhead.translation.review import Review
from clearhead.translation.review_files import open_review
from clearhead.translation.terminology import Terms

IDLE_SECONDS = 600.0
"""Seconds after the last request until a review is closed; the next request opens it again."""
SHARE_OF_CLIENT = 4
"""A client may begin this part of all reviews."""
_KEY = re.compile("[0-9a-f]{32}")
# Names of documents do not begin with a dot (`safe_name`).
_START, _MEMORY, _ORIGINAL, _BEGUN_BY = ".start.json", f".memory{EXTENSION}", ".original", ".begun-by-"


class ReviewStart(BaseModel):
    """What a review begins with: a document and its translations."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    name: str
    """Name of the document's file, from `safe_name`."""
    output: str
    """Name of the file that is written, from `safe_name`."""
    data: bytes = b""
    """Content of the document, which is a file of its own in the directory of a review."""
    options: dict[str, Any]
    """Options of its format, as for `opened_upload`."""
    model: str
    """Name of the model that translated it, and the languages."""
    source: str | None
    target: str | None
    language: str
    """The language that is written into the document."""
    translated: list[tuple[Status, Translation | None]]
    """The result of each segment."""

    @classmethod
    def of(cls, translated: Sequence[TranslatedSegment], choice: Choice, language: str, **file: Any) -> Self:
        """Return the beginning of a review.

        Args:
            translated: All segments of the document.
            choice: The model and languages.
            language: As `Document.language`.
            **file: The other fields.
        """
        results = [(each.status, each.translation and replace(each.translation, sentences=())) for each in translated]
        file |= {"model": choice.model.name, "source": choice.source, "target": choice.target}
        return cls(translated=results, language=language, **file)

    def segments(self, document: Document) -> list[TranslatedSegment]:
        """Return the translated segments of the document, which was read again.

        Raises:
            DataError: If it has other segments, as another version of the program may read it.
        """
        sources = [segment.text for segment in document.segments]
        known = [translation and translation.source for _, translation in self.translated]
        if len(sources) != len(known) or any(own not in (None, text) for own, text in zip(known, sources, strict=True)):
            raise DataError("the document is read in other segments than when its review began; begin a new one")
        pairs = zip(document.segments, self.translated, strict=True)
        return [TranslatedSegment(segment, *result) for segment, result in pairs]


@dataclass(eq=False, slots=True)
class OpenReview:
    """A review that is in use, or was within `IDLE_SECONDS`."""

    app: ASGIApp
    """Answers its requests."""
    document: _SharedDocument
    size: int
    """Most bytes of memory of its document."""
    held: ExitStack
    """What is closed with it."""
    num_users: int = 0
    """Number of requests that it is answering."""
    last: float = 0.0
    """When the last of them ended, on the clock of `time.monotonic`."""


class KeptReviews:
    """The reviews in a directory, which several servers may share; a review is open in one of them at a time.

    Args:
        directory: The directory; it is made if it is missing.
        config: The limits.

    Raises:
        DataError: If it cannot be written to.
    """

    def __init__(self, directory: Path, config: ServeConfig) -> None:
        self._directory = Path(os.path.realpath(directory))
        self._config = config
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            TemporaryDirectory(dir=self._directory).cleanup()
        except OSError as error:
            raise DataError(f"cannot keep reviews in {directory}: {error.strerror}") from None
        self._open: dict[str, OpenReview] = {}
        self._lock = Lock()
        self._beginning = BoundedSemaphore(1)
        """Held while a review is begun."""
        self._changing = BoundedSemaphore(1)
        """Held while a review is opened or closed; reading a large document takes seconds."""

    def begin(self, start: ReviewStart, job: Job) -> str:
        """Keep a new review of the client of a job; return its key.

        Raises:
            HTTPError: If there are too many, in all or of this client, if its files take too many bytes, or if they
                cannot be written.
        """
        content = start.model_dump_json(exclude={"data"}).encode()
        self._require_bytes(2 * len(start.data) + len(content))  # with the document that is written
        mark = f"{_BEGUN_BY}{sha256(job.client.encode()).hexdigest()[:16]}"
        most, key = self._config.max_reviews, secrets.token_hex(16)
        with _held(self._beginning, job), _as_refusal(self._directory, "begun"):
            kept = [path for path in self._directory.iterdir() if _KEY.fullmatch(path.name)]
            own = sum((path / mark).exists() for path in kept)
            if len(kept) >= most or own >= -(-most // SHARE_OF_CLIENT):
                whose = f"{own:,} of yours" if len(kept) < most else f"{len(kept):,}"
                raise HTTPError(HTTPStatus.FORBIDDEN, f"this server keeps no more reviews: it has {whose}")
            with new_directory(self._directory / key) as new:
                (new / mark).touch()
                (new / _ORIGINAL).mkdir()
                with new_file(new / _ORIGINAL / start.name) as original:
                    original.write_bytes(start.data)
                (new / _START).write_bytes(content)
        return key

    def client(self, key: str) -> str:
        """Return a name for the client that began a review; the requests of its link count for that client.

        Raises:
            HTTPError: If there is no such review.
        """
        return next((path.name for path in self._path(key).glob(f"{_BEGUN_BY}*")), key)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key) or not (self._directory / key).is_dir():
            raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such review")
        return self._directory / key

    def require_room(self, key: str) -> None:
        """Make sure that a review may grow.

        Raises:
            HTTPError: If its files take too many bytes.
        """
        num_bytes = 0
        for path in self._path(key).rglob("*"):
            with suppress(FileNotFoundError):  # a new version of the document took its place
                num_bytes += path.lstat().st_size
        self._require_bytes(num_bytes)

    def _require_bytes(self, num_bytes: int) -> None:
        if num_bytes > (most := self._config.max_review_bytes):
            raise HTTPError(
                HTTPStatus.FORBIDDEN, f"this review has no room: it takes {num_bytes:,} bytes of at most {most:,}"
            )

    def enter(self, key: str) -> OpenReview | None:
        """Return a review that stays open until `leave` is called; None if it is not open."""
        with self._lock:
            if (opened := self._open.get(key)) is not None:
                opened.num_users += 1
            return opened

    def leave(self, opened: OpenReview) -> None:
        """End the use of a review by a request."""
        with self._lock:
            opened.num_users -= 1
            opened.last = time.monotonic()

    def open(
        self,
        key: str,
        job: Job,
        lookups: Callable[[ReviewStart], tuple[Terms | None, Lookup]],
        app: Callable[[Review, ReviewStart], ASGIApp],
    ) -> None:
        """Open a review, if it is not open; those not used for the longest are closed if it needs their memory.

        Args:
            key: Its key.
            job: The request, which waits no longer than its deadline.
            lookups: Returns the terms, and what finds matches, for its languages.
            app: Returns what answers its requests.

        Raises:
            HTTPError: If there is no such review, it cannot be read, or another server has it open.
        """
        directory = self._path(key)
        with _held(self._changing, job), _as_refusal(directory, "read"):
            if key in self._open:
                return
            start = ReviewStart.model_validate_json((directory / _START).read_bytes())
            size = memory_of(start.name, (directory / _ORIGINAL / start.name).stat().st_size)
            self._make_room(size)
            with ExitStack() as held:
                review, document = _opened(directory, start, lookups(start), job, held)
                opened = OpenReview(app(review, start), document, size, held.pop_all(), last=time.monotonic())
            with self._lock:
                self._open[key] = opened

    def _make_room(self, size: int) -> None:
        """Close reviews until a document of a size has room.

        Raises:
            HTTPError: If all of them are in use.
        """
        while self._open and sum(one.size for one in self._open.values()) + size > self._config.max_file_memory:
            if not self._close_oldest(lambda _: True):
                raise unavailable("too many documents are being reviewed; ask again")

    def sweep(self) -> None:
        """Close the reviews that have not been used for long, and those whose document is lost."""
        if self._changing.acquire(blocking=False):
            try:
                until = time.monotonic() - IDLE_SECONDS
                while self._close_oldest(lambda one: one.last < until or one.document.has_ended):
                    pass
            finally:
                self._changing.release()

    def close(self) -> None:
        """Close all reviews."""
        with self._changing:
            while self._close_oldest(lambda _: True):
                pass

    def _close_oldest(self, is_wanted: Callable[[OpenReview], bool]) -> bool:
        """Close one of the reviews that no request uses, the one not used for the longest; return whether there was."""
        with self._lock:
            unused = [(one.last, key) for key, one in self._open.items() if not one.num_users and is_wanted(one)]
            if not unused:
                return False
            opened = self._open.pop(min(unused)[1])
        try:
            opened.held.close()
        except (ClearheadError, HTTPError, OSError) as error:  # its journal has all
            log_event(logging.ERROR, event="review", result="not written", error=type(error).__name__)
        return True


class _SharedDocument(Document):
    """A document in another process, used by several threads; the loss of that process is an error of data."""

    def __init__(self, document: Document, language: str) -> None:
        self._document = document
        self._document.language = self.language = language
        self._lock = Lock()
        self.format, self.segments, self.keeps_finished = document.format, document.segments, document.keeps_finished
        self.has_ended = False
        """Whether the process is lost."""

    def problem(self, number: int, translation: str) -> str:
        return self._call(self._document.problem, number, translation)

    def problem_of_edit(self, number: int, text: str) -> str:
        return self._call(self._document.problem_of_edit, number, text)

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        return self._call(self._document.filled, fillings)

    def _call(self, method: Callable[..., Any], *arguments: object) -> Any:
        with self._lock:
            try:
                return method(*arguments)
            except HTTPError as error:
                self.has_ended = True
                raise DataError(error.message) from None
            except RuntimeError as error:  # a bug, after which the process ends
                self.has_ended = True
                log_event(logging.ERROR, event="review", result="failed", error=f"{error} at {place_of(error)}")
                raise DataError("the server made a mistake with this text; write it differently") from None


def _opened(
    directory: Path, start: ReviewStart, lookups: tuple[Terms | None, Lookup], job: Job, held: ExitStack
) -> tuple[Review, _SharedDocument]:
    """Open the review in a directory, until `held` is closed."""
    is_opening = True

    def require_time() -> None:
        if is_opening:
            job.require_time()

    files = held.enter_context(open_review(f"{directory / _ORIGINAL / start.name}", f"{directory / start.output}", {}))
    read = held.enter_context(opened_upload(files.path, require_time, **start.options))
    document = _SharedDocument(read, start.language)
    segments = start.segments(document)
    is_opening = False
    terms, memory = lookups
    corrections = held.enter_context(closing(CorrectionMemory(directory / _MEMORY, (start.source, start.target))))
    review = Review(files, document, segments, terms=terms, memory=memory, corrections=corrections)
    held.enter_context(closing(review))
    review.save()
    return review, document


@contextmanager
def _held(semaphore: BoundedSemaphore, job: Job) -> Iterator[None]:
    acquire(semaphore, job)
    try:
        yield
    finally:
        semaphore.release()


@contextmanager
def _as_refusal(directory: Path, verb: str) -> Iterator[None]:
    """Turn errors into HTTP errors without paths of the server, and log those of the server itself.

    Args:
        directory: The directory that the paths are in.
        verb: What is done to the review: `begun` or `read`.
    """
    try:
        yield
    except (ConfigError, DataError) as error:
        raise unavailable(client_message(str(error), directory)) from None
    except (OSError, ValidationError) as error:
        log_event(logging.ERROR, event="review", result=f"not {verb}", error=type(error).__name__)
        reason = f": {error.strerror}" if isinstance(error, OSError) else ""
        raise unavailable(f"this review cannot be {verb}{reason}") from None
