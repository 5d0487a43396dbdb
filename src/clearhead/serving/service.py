"""The translation service without HTTP: models, batches, threads, keys and files."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from threading import BoundedSemaphore, Lock
from typing import Any

from clearhead.config import DecodeConfig, ServeConfig
from clearhead.errors import ClearheadError, DataError
from clearhead.runtime.threads import num_threads
from clearhead.serving import document_process
from clearhead.serving.admission import Admission, MemoryBudget, acquire
from clearhead.serving.batched_search import Job, SharedSearch
from clearhead.serving.batches import Batches, freeze_loaded_objects
from clearhead.serving.file_changes import FileState
from clearhead.serving.files import TranslatedFiles
from clearhead.serving.http_errors import HTTPError, unavailable
from clearhead.serving.kept_reviews import KeptReviews
from clearhead.serving.keys import Keys
from clearhead.serving.languages import possible_languages
from clearhead.serving.log import log_event
from clearhead.serving.metrics import Metrics
from clearhead.serving.model_choice import Choice
from clearhead.serving.models import Models, ModelSource, ServedModel, load_model
from clearhead.serving.search_process import SearchProcess, SearchProcesses
from clearhead.serving.terms_and_memories import Resources
from clearhead.translation.result import MemoryMatch
from clearhead.translation.terminology import Terms
from clearhead.translation.translator import Translator, searching_by

MAX_REPLACEMENTS = 3
"""Search processes that are replaced within an hour; then the server ends, since something else is wrong."""
_SMALL_CHARACTERS = 2_000
"""Characters of a request's texts up to which they are prepared at once, which takes a few milliseconds."""
_SECONDS_OF_REPLACEMENTS = 3_600.0
_ENDED = "the process that searches has ended, perhaps because the memory was full"
SECONDS_TO_VERIFY = 3_600.0
"""Time limit in seconds for verifying a model, while it competes with requests."""


class _UnverifiedError(ClearheadError):
    """The searches failed that should verify a model; the model may be sound."""


class Service:
    """The translation service, independent of HTTP.

    Args:
        sources: The models to serve.
        config: The limits.
        keys: API keys.
        resources: Terms and translation memories.
        device: Device name, passed to `Translator.load`.
        search_processes: Where search processes come from; without it, searches run here.
        takes_files: Whether files are translated; each is downloaded from the server that translated it.
        reviews: The reviews of their translations; None if they are not reviewed here.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        config: ServeConfig,
        keys: Keys,
        resources: Resources | None = None,
        *,
        device: str,
        search_processes: SearchProcesses | None = None,
        takes_files: bool = True,
        reviews: KeptReviews | None = None,
    ) -> None:
        self.config = config
        self.keys = keys
        self.resources = resources or Resources()
        self.takes_files = takes_files
        self.reviews = reviews
        self._sources = list(sources)
        self._device = device
        self._models: Models | None = None
        self._loading = Lock()
        self._verification: Job | None = None
        self._refused: dict[str, FileState | None] = {}
        self._seen: dict[str, FileState | None] = {}
        self.metrics = Metrics(
            num_open=lambda: self._searches.num_open,
            num_requests=lambda: self.admission.num_requests,
            is_ready=lambda: self.is_ready,
            search_process=lambda: getattr(self._searches, "process", 0),
            document_memory=document_process.resident_memory,
        )
        self._search_processes = search_processes
        self._replaced_at: list[float] = []
        self._searches = (
            Batches(config.max_batch, config.max_searches, self.metrics)
            if search_processes is None
            else self._begin_searches(search_processes)
        )
        self.admission = Admission(config, self.metrics)
        self.files = TranslatedFiles(config.keep_file_seconds)
        self.file_memory = MemoryBudget(config.max_file_memory)
        self._outside_batches = BoundedSemaphore(num_threads())
        self._large_texts = BoundedSemaphore(1)
        self._alignments = BoundedSemaphore(num_threads())

    @property
    def is_ready(self) -> bool:
        """Whether requests are served."""
        is_searching = not self._searches.is_ended and not self._searches.is_stuck
        return self._models is not None and not self.admission.is_ending and is_searching and self._reads_files

    @property
    def _reads_files(self) -> bool:
        return not (self.takes_files and document_process.is_stopped())

    def require_ready(self) -> None:
        """Raise `HTTPError` unless requests are served.

        Raises:
            HTTPError: If the models are still being loaded, the server ends, or a process of it is being replaced.
        """
        self.models  # noqa: B018 - raises while they are being loaded
        if self.admission.is_ending:
            raise unavailable("the server is shutting down")
        if not self.is_ready:
            raise unavailable("a process of the server is being replaced")

    def _begin_searches(self, processes: SearchProcesses) -> SearchProcess:
        connection, number = processes.new()
        return SearchProcess(connection, self.metrics, number)

    @property
    def models(self) -> Models:
        """The loaded models.

        Raises:
            HTTPError: If they are still being loaded.
        """
        if self._models is None:
            raise unavailable("the models are still being loaded; ask again")
        return self._models

    def load(self) -> None:
        """Load and verify all models, and load terms and memories; the server is ready afterwards.

        Raises:
            ClearheadError: If a model cannot be loaded or verified, or `Resources.load` fails.
        """
        with self._loading:
            possible_languages("", ["en"])  # load the table of the language identifier, once
            if self.takes_files:
                document_process.prepare()
            models = Models({source.name: self._load(source) for source in self._sources})
            self.resources.load(models)
            freeze_loaded_objects()
            self._models = models

    def reload(self, *, force: bool = False) -> bool:
        """Reload replaced models, keys, terms and memories; requests use the old ones meanwhile.

        Files that cannot be read, and models whose golden translations have changed, are logged, and the old ones stay
        in use.

        Args:
            force: Reload everything, also what has not been replaced.

        Returns:
            Whether a model, terms or a memory were reloaded.
        """
        with self._loading:
            try:
                if self.keys.reload(always=force):
                    log_event(logging.INFO, event="keys", result="done")
            except ClearheadError as error:
                log_event(logging.ERROR, event="keys", result="refused", error=str(error))
            assert self._models is not None
            is_changed = False
            served = dict(self._models.served)
            for source in self._sources:
                state = source.state()
                is_written = state != self._seen.get(source.name)  # perhaps still being written, and incomplete
                self._seen[source.name] = state
                is_known = state in (None, served[source.name].state, self._refused.get(source.name))
                if (is_known or is_written) and not force:
                    continue
                try:
                    served[source.name] = self._load(source)
                except Exception as error:  # such as too little memory for two models: the old one stays in use
                    if self.admission.is_ending:
                        return False
                    if not isinstance(error, _UnverifiedError):  # otherwise it is tried again
                        self._refused[source.name] = state
                    self._note_reload("refused", error, model=source.name)
                else:
                    is_changed = True
                    self._note_reload("done", model=source.name)
            self._models = Models(served)
            for name in self.resources.names if force else self.resources.changed():
                try:
                    self.resources.read(name, self._models)
                except Exception as error:
                    self._note_reload("refused", error, resource=name)
                else:
                    is_changed = True
                    self._note_reload("done", resource=name)
            return is_changed

    def maintain(self, *, force: bool = False) -> None:
        """Periodic maintenance, every second: reload replaced files, remove expired files, close idle reviews.

        Args:
            force: Reload everything, also what has not been replaced.
        """
        is_changed = self.reload(force=force)
        self.files.sweep()
        if self.reviews is not None:
            self.reviews.sweep()
        if is_changed:
            freeze_loaded_objects()

    def _load(self, source: ModelSource) -> ServedModel:
        """Load a model, and verify it through the same shared searches as requests.

        Raises:
            ClearheadError: If `load_model` or `check_processes` fails, it takes too long, or the server ends.
        """
        job = self._verification = Job("", time.monotonic() + SECONDS_TO_VERIFY, sys.maxsize)
        if self.admission.is_ending:
            job.cancel()

        def as_served(translator: Translator) -> Translator:
            translator.aligner.passes = self._alignments
            return self._sharing(translator, job, translator.decode_config({}))

        try:
            return load_model(source, device=self._device, as_served=as_served)
        except HTTPError as refusal:
            if self._searches.is_ended:
                raise _UnverifiedError(_ENDED) from None
            raise _UnverifiedError(f"{source.path} cannot be verified: {refusal}") from None

    def begin_shutdown(self) -> None:
        """Refuse new requests, and let the verification of a model fail."""
        self.admission.is_ending = True
        if self._verification is not None:
            self._verification.cancel()

    def check_processes(self) -> None:
        """Close idle batches; replace other processes that have ended or are stuck.

        Replacing a search process refuses its requests; requests that wait for a document reader continue.

        Raises:
            ClearheadError: If that has not helped: too many have ended or got stuck within an hour.
        """
        if not self._reads_files:
            log_event(logging.ERROR, event="documents", result="stopped")
            document_process.replace_stopped()
        before = self._searches
        if not before.is_ended and not before.is_stuck:
            before.sweep()
            return
        now = time.monotonic()
        self._replaced_at = [moment for moment in self._replaced_at if now - moment < _SECONDS_OF_REPLACEMENTS]
        if self._search_processes is None or len(self._replaced_at) >= MAX_REPLACEMENTS:
            raise ClearheadError(_ENDED)
        self._replaced_at.append(now)
        reason = "ended" if before.is_ended else "stuck"
        self.metrics.search_restarts.labels(reason).inc()
        log_event(logging.ERROR, event="search", result=reason)
        assert isinstance(before, SearchProcess)
        before.kill()
        self._searches = self._begin_searches(self._search_processes)
        before.close()

    def _note_reload(self, result: str, error: Exception | None = None, **fields: str) -> None:
        self.metrics.reloads.labels(result).inc()
        if error is not None:
            fields["error"] = str(error) if isinstance(error, ClearheadError) else repr(error)
        log_event(logging.INFO if error is None else logging.ERROR, event="reload", result=result, **fields)

    def terms(self, choice: Choice, name: str | None = None) -> Terms | None:
        """Return the named list of terms, or the default terms for a model and its languages, if any.

        Raises:
            HTTPError: If there is no list of that name.
        """
        if name is not None:
            return self.resources.named_terms(name)
        return self.resources.terms(choice.model, choice.source, choice.target)

    def memory(self, choice: Choice, job: Job, least: float | None = None) -> dict[str, Any]:
        """Return the functions of the translation memory for a model and its languages; empty without a memory.

        They are keyword arguments of `Translator.translate`.

        Args:
            choice: The model and languages.
            job: The request, whose deadline each lookup checks.
            least: Least similarity of a match; None accepts exact matches only.
        """
        memory = self.resources.memory(choice.model, choice.source, choice.target)
        if memory is None:
            return {}

        @contextmanager
        def looking_up() -> Iterator[None]:
            job.require_time()
            try:
                yield
            except DataError as error:  # the file is damaged, or locked for long; clients need not know its path
                log_event(logging.ERROR, event="memory", result="unreadable", error=str(error))
                raise HTTPError(
                    HTTPStatus.SERVICE_UNAVAILABLE, "the translation memory of this server cannot be read"
                ) from None

        def match(text: str, /, *, context: str | None = None) -> MemoryMatch | None:
            with looking_up():
                if least is None:
                    return memory.exact(text, context=context)
                return memory.match(text, least, context=context)

        def nearest(text: str) -> Sequence[MemoryMatch]:
            with looking_up():
                return memory.nearest(text)

        return {"memory": match, "neighbours": nearest}

    def translator(self, choice: Choice, job: Job) -> Translator:
        """Return the translator of a model, which searches in the batches shared with other requests."""
        return self._sharing(choice.model.translator, job, choice.model.default_search)

    def _sharing(self, translator: Translator, job: Job, default: DecodeConfig) -> Translator:
        return searching_by(translator, SharedSearch(self._searches).decoder(job, default))

    @contextmanager
    def prepared(self, job: Job, texts: Sequence[str]) -> Iterator[None]:
        """Prepare large texts one at a time, until their search begins.

        Preparation is splitting, normalizing and tokenizing, after which a text may be refused for its tokens. It holds
        Python's global lock: several at once would be no faster, and delay small requests, which do not wait here.

        Raises:
            HTTPError: If the job's deadline passes while waiting.
        """
        if sum(map(len, texts)) > _SMALL_CHARACTERS:
            acquire(self._large_texts, job)
            job.preparation.callback(self._large_texts.release)
        with job.preparation:
            yield

    @contextmanager
    def outside_batches(self, job: Job) -> Iterator[None]:
        """Limit computations outside the batches, such as scoring, to as many at once as there are threads.

        Raises:
            HTTPError: If the job's deadline passes while waiting.
        """
        acquire(self._outside_batches, job)
        try:
            yield
        finally:
            self._outside_batches.release()

    def close(self) -> bool:
        """Release threads and files; return whether all work ended, so that the process can end too."""
        is_done = self.admission.close()
        self.files.close()  # removed before anything that may block, since nothing else would remove them
        if self.reviews is not None:
            self.reviews.close()
        self._searches.close()
        if self._search_processes is not None:
            self._search_processes.close()
        gc.unfreeze()
        return is_done
