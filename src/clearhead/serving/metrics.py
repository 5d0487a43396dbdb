"""Prometheus metrics of the server: numbers only, never a text, a key, or an address."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from clearhead.runtime.version import full_version

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


disable_created_metrics()  # type: ignore[no-untyped-call]  # creation times of series are not needed


class Metrics:
    """The metrics of one server.

    Args:
        num_open: Returns the number of sentences that wait or are in flight.
        num_requests: Returns the number of requests at work.
        is_ready: Returns whether requests are served.
        search_process: Returns the number of the process that searches, whose memory and time are reported beside
            those of this one; 0 if there is none.
        document_memory: Returns the memory of the processes that read and write files, in bytes.
    """

    def __init__(
        self,
        *,
        num_open: Callable[[], int],
        num_requests: Callable[[], int],
        is_ready: Callable[[], bool],
        search_process: Callable[[], int] = lambda: 0,
        document_memory: Callable[[], int] = lambda: 0,
    ) -> None:
        self.registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.requests = counter("clearhead_requests", "Requests answered.", ["endpoint", "status"])
        about = "From a request's headers to the end of its answer."
        self.seconds = histogram("clearhead_request_seconds", about, ["endpoint"], buckets=_SECONDS)
        about = (
            "Where the time goes: body (until it is read), start (until a thread has it), wait (of a sentence, until "
            "it is in a batch), work (of a request in its thread, waiting included)."
        )
        self.stages = histogram("clearhead_stage_seconds", about, ["stage"], buckets=_SECONDS)
        about = "Sentences in flight in a batch when one enters, itself included."
        self.batch = histogram("clearhead_batch_sentences", about, buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256))
        self.tokens = counter("clearhead_tokens", "Tokens read and written.", ["side"])
        self.sentences = counter("clearhead_sentences", "Sentences translated.")
        self.cancelled = counter("clearhead_cancelled", "Requests whose client went away.")
        self.reloads = counter("clearhead_reloads", "Models, terms and memories read anew.", ["result"])
        self.of_models = counter("clearhead_model_requests", "Requests answered by a model.", ["model", "status"])
        about = "As clearhead_request_seconds, by model."
        self.seconds_of_models = histogram("clearhead_model_request_seconds", about, ["model"], buckets=_SECONDS)
        about = "Processes that search and were replaced, by reason."
        self.search_restarts = counter("clearhead_search_restarts", about, ["reason"])
        build = Gauge("clearhead_build_info", "Always 1.", ["version"], registry=registry)
        build.labels(full_version()).set(1)
        ProcessCollector(registry=registry)
        ProcessCollector("clearhead_search", pid=search_process, registry=registry)
        for name, help_text, read in (
            ("clearhead_open_sentences", "Sentences that wait or are in flight.", num_open),
            ("clearhead_open_requests", "Requests that are worked on or wait for it.", num_requests),
            ("clearhead_documents_resident_memory_bytes", "Memory of the processes of files.", document_memory),
            ("clearhead_ready", "1 if requests are served.", is_ready),
        ):
            Gauge(name, help_text, registry=registry).set_function(read)

    def waited(self, seconds: float) -> None:
        """Record how many seconds a sentence waited; see `MetricsListener`."""
        self.stages.labels("wait").observe(seconds)

    def entered(self, in_flight: int) -> None:
        """Record the number of sentences in a batch."""
        self.batch.observe(in_flight)

    def translated(self, source_tokens: int, target_tokens: int) -> None:
        """Count a translated sentence and its tokens."""
        self.sentences.inc()
        self.tokens.labels("source").inc(source_tokens)
        self.tokens.labels("target").inc(target_tokens)

    def answered_by(self, models: str, status: int, seconds: float) -> None:
        """Count a request for each of the models that it asked.

        Args:
            models: Their names, as `model_log_fields` joins them.
            status: Status of the answer.
            seconds: From the headers to the end of the answer.
        """
        for model in models.split(", "):
            self.of_models.labels(model, str(status)).inc()
            self.seconds_of_models.labels(model).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self.registry)
