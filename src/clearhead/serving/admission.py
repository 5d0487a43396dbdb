"""Admission control: the request threads, their limits in total and per client, deadlines, and a memory budget."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from threading import BoundedSemaphore, Condition
from typing import Any, TypeVar

from clearhead.config import ServeConfig
from clearhead.runtime.interruption import interrupted_by
from clearhead.serving.batched_search import Job
from clearhead.serving.http_errors import ClientDisconnected, HTTPError, timed_out, unavailable
from clearhead.serving.metrics import Metrics

T = TypeVar("T")

SECONDS_TO_NOTICE = 0.5
"""Seconds that work has to notice its end: its answer is then on its way, or the request is answered without it."""
CROWDED_SECONDS = 20.0
"""Seconds after the server was full until it admits all `max_requests` again.

Under overload the server then fills only for a moment: with seconds between the peaks, fewer than one request in a
hundred is admitted in the meantime. The period also ends while requests are refused; otherwise clients that retry at
once would keep half the capacity unused for ever.
"""
_SECONDS_BETWEEN_CHECKS = 0.1
"""Seconds after which work that waits for memory looks at its time again."""


class Admission:
    """Admission and execution of requests; everything but the threads is used by the event loop only.

    Args:
        config: The limits.
        metrics: The metrics to update.
        clock: Returns the time in seconds.
    """

    def __init__(self, config: ServeConfig, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._crowded_until = -math.inf
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(config.max_requests, thread_name_prefix="clearhead request")
        self._of_clients: Counter[str] = Counter()
        self._jobs: set[Job] = set()
        self._cancellations: list[asyncio.Future[None]] = []
        self.is_ending = False
        """Whether new requests are refused."""

    @property
    def num_requests(self) -> int:
        """Number of requests that are running or wait for a thread."""
        return len(self._jobs)

    def require_room(self) -> None:
        """Raise `HTTPError` unless one more request can be admitted.

        A burst may fill the server. If it stays full, more concurrent requests do not yield more translations per
        second; they only wait for each other. The limit is then halved, and those admitted are answered in half the
        time.

        Raises:
            HTTPError: If the server is shutting down or overloaded.
        """
        if self.is_ending:
            raise unavailable("the server is shutting down; ask again")
        now, most = self._clock(), self._config.max_requests
        is_crowded = now < self._crowded_until
        if len(self._jobs) >= (-(-most // 2) if is_crowded else most):
            if not is_crowded:
                self._crowded_until = now + CROWDED_SECONDS
            raise unavailable("the server has too much to do; ask again")

    @contextmanager
    def admitted(self, client: str, seconds: float, max_tokens: int) -> Iterator[Job]:
        """Admit a request for the duration of the block.

        Args:
            client: The client, for the limit per client.
            seconds: Time limit of the request.
            max_tokens: Token limit of the request.

        Raises:
            HTTPError: If the server is shutting down or overloaded, or the client has too many requests running.
        """
        self.require_room()
        most = self._config.max_requests_per_client
        if self._of_clients[client] >= most:
            raise HTTPError(HTTPStatus.TOO_MANY_REQUESTS, f"Slowdown: {most} requests at once", retry_after=1)
        job = Job(client, time.monotonic() + seconds, max_tokens)
        self._jobs.add(job)
        self._of_clients[client] += 1
        try:
            yield job
        finally:
            self._jobs.discard(job)
            self._of_clients[client] -= 1
            if not self._of_clients[client]:
                del self._of_clients[client]

    async def run(self, job: Job, function: Callable[[], T], disconnected: Callable[[], Awaitable[object]]) -> T:
        """Run a function in a thread and return its result; cancel it if the client disconnects.

        Args:
            job: The admitted request.
            function: The work; it ends early when the job is cancelled.
            disconnected: Completes when the client has disconnected.

        Raises:
            ClientDisconnected: If the client has disconnected; the work has ended, or is left to end by itself.
            HTTPError: If the time of the request is over, even if the work does not notice.
        """
        asked = time.monotonic()

        def work() -> T:
            begin = time.monotonic()
            self._metrics.stages.labels("start").observe(begin - asked)
            try:
                job.require_time()
                with interrupted_by(job.require_time):
                    return function()
            finally:
                self._metrics.stages.labels("work").observe(time.monotonic() - begin)

        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        gone = asyncio.ensure_future(disconnected())
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancellations.append(cancelled)
        try:
            either: set[asyncio.Future[Any]] = {done, gone, cancelled}
            left = max(0.0, job.deadline - asked) + SECONDS_TO_NOTICE
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done.done() and gone.done():
                self._metrics.cancelled.inc()
                job.cancel()
                await asyncio.wait({done}, timeout=SECONDS_TO_NOTICE)
                raise ClientDisconnected
            if not done.done():
                job.require_time()
                raise timed_out()
            return await done
        finally:
            gone.cancel()
            self._cancellations.remove(cancelled)
            if not done.done():
                job.cancel()
            # Where nothing awaits the result any more, asyncio would log an exception that is never retrieved.
            done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    def cancel_all(self) -> None:
        """Cancel all running requests; their clients are asked to retry, also where the work does not notice."""
        for job in list(self._jobs):
            job.cancel()
        for request in list(self._cancellations):
            loop = request.get_loop()
            loop.call_soon_threadsafe(loop.call_later, SECONDS_TO_NOTICE, _complete, request)

    def close(self) -> bool:
        """Shut the threads down; return whether all work ended within `SECONDS_TO_NOTICE` after it was cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + SECONDS_TO_NOTICE
        for thread in self._threads._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads._threads)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def acquire(semaphore: BoundedSemaphore, job: Job) -> None:
    """Acquire a semaphore for a job.

    Raises:
        HTTPError: If the job's deadline passes while waiting.
    """
    while not semaphore.acquire(timeout=min(1.0, max(0.0, job.deadline - time.monotonic()))):
        job.require_time()


class MemoryBudget:
    """Memory that concurrent work may take together, counted before the work begins; work that finds no room waits.

    Each block takes its part for its duration; the first to ask is the first served.

    Args:
        num_bytes: The number of bytes.
    """

    def __init__(self, num_bytes: int) -> None:
        self._total = self._left = num_bytes
        self._changed = Condition()
        self._waiting: deque[object] = deque()

    @contextmanager
    def taken(self, num_bytes: int, require_time: Callable[[], None]) -> Iterator[None]:
        """Take memory for the duration of the block; wait until it is free.

        Args:
            num_bytes: Bytes to take; more than all is all.
            require_time: Called while waiting; what it raises ends that.
        """
        part, place = min(num_bytes, self._total), object()
        with self._changed:
            self._waiting.append(place)
            try:
                while self._waiting[0] is not place or self._left < part:
                    require_time()
                    self._changed.wait(_SECONDS_BETWEEN_CHECKS)
                self._left -= part
            finally:
                self._waiting.remove(place)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._left += part
                self._changed.notify_all()
