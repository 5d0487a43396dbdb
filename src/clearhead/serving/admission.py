"""The threads in which requests are worked on: how many there may be, of whom, and until when."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

from clearhead.config import ServeConfig
from clearhead.serving.batched_search import Job
from clearhead.serving.http_errors import ClientGone, Refusal
from clearhead.serving.metrics import Metrics

__all__ = ["Work"]

T = TypeVar("T")

CROWDED_SECONDS = 20.0
"""Since the server was full, until there is room for all `max_requests` again. Where more is asked for than it can do,
it then fills for a moment: with seconds between, fewer than one request in a hundred is let in meanwhile. It ends also
while others are refused, or clients that ask again at once would keep half the room closed to themselves for ever."""


class Work:
    """Requests at work. All but the threads themselves belongs to the event loop.

    Args:
        config: The limits.
        metrics: Who counts.
        clock: Tells the time, in seconds.
    """

    def __init__(self, config: ServeConfig, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._crowded_until = -math.inf
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(config.max_requests, thread_name_prefix="clearhead request")
        self._of_clients: Counter[str] = Counter()
        self._jobs: set[Job] = set()
        self.is_ending = False
        """Whether new requests are refused."""

    @property
    def num_requests(self) -> int:
        """Requests that are worked on, or wait for a thread."""
        return len(self._jobs)

    def require_room(self) -> None:
        """Make sure that there is room for one more request.

        A burst may fill the server. If it stays full, more requests at once are no more translations a second, and
        only wait for each other: then there is room for half as many, who are answered in half the time.

        Raises:
            Refusal: If the server ends, or has too much to do.
        """
        if self.is_ending:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server is shutting down; ask again", retry_after=1)
        now, most = self._clock(), self._config.max_requests
        is_crowded = now < self._crowded_until
        if len(self._jobs) >= (-(-most // 2) if is_crowded else most):
            if not is_crowded:
                self._crowded_until = now + CROWDED_SECONDS
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the server has too much to do; ask again", retry_after=1)

    @contextmanager
    def admitted(self, client: str, seconds: float, max_tokens: int) -> Iterator[Job]:
        """Let a request in for the length of the block.

        Args:
            client: Whose it is.
            seconds: It may take.
            max_tokens: It may use.

        Raises:
            Refusal: If the server ends, has too much to do, or the client has.
        """
        self.require_room()
        most = self._config.max_requests_per_client
        if self._of_clients[client] >= most:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, f"Slowdown: {most} requests at once", retry_after=1)
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

    async def run(self, job: Job, function: Callable[[], T], is_gone: Callable[[], Awaitable[object]]) -> T:
        """Return what a function gives, which works in a thread until it ends or its client goes away.

        Args:
            job: What was let in.
            function: The work; it ends early when the job is cancelled.
            is_gone: Ends when the client has gone away.

        Raises:
            ClientGone: If it has; the work has ended then.
        """
        asked = time.monotonic()

        def work() -> T:
            begin = time.monotonic()
            self._metrics.stages.labels("start").observe(begin - asked)
            try:
                job.require_time()
                return function()
            finally:
                self._metrics.stages.labels("work").observe(time.monotonic() - begin)

        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        gone = asyncio.ensure_future(is_gone())
        try:
            either: set[asyncio.Future[Any]] = {done, gone}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                self._metrics.cancelled.inc()
                job.cancel()
                await asyncio.gather(done, return_exceptions=True)
                raise ClientGone
            return await done
        except asyncio.CancelledError:
            job.cancel()
            # Nobody awaits how it ends, and asyncio would write that into the log.
            done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise
        finally:
            gone.cancel()

    def cancel_all(self) -> None:
        """Break off all that is at work; its clients are told to ask again."""
        for job in list(self._jobs):
            job.cancel()

    def close(self) -> None:
        """End the threads, when their work has."""
        self._threads.shutdown(wait=True, cancel_futures=True)
