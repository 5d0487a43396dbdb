"""Admission: accepted requests, rejected ones with Retry-After, and work whose client has left."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import ExitStack

import pytest

from clearhead.config import ServeConfig
from clearhead.serving.admission import Admission
from clearhead.serving.batched_search import Job
from clearhead.serving.http_errors import ClientDisconnected, HTTPError
from clearhead.serving.metrics import Metrics
from clearhead.translation.translator import Translator


@pytest.fixture
def clock():
    """Return a list of the time alone, which tests set."""
    return [100.0]


@pytest.fixture
def metrics():
    return Metrics(num_open=lambda: 0, num_requests=lambda: 0, is_ready=lambda: True)


@pytest.fixture
def work(clock, metrics):
    found = Admission(ServeConfig(max_requests=4, max_requests_per_client=2), metrics, lambda: clock[0])
    yield found
    found.close()


def admitted(work, client="a", seconds=60.0):
    return work.admitted(client, seconds, 100)


def test_each_client_has_its_bound_and_all_have_one(work, clock):
    with ExitStack() as entered:
        for client in "aabb":
            entered.enter_context(admitted(work, client))
        for client in "ac":
            with pytest.raises(HTTPError) as refused:
                entered.enter_context(admitted(work, client))
            assert (refused.value.status, refused.value.retry_after) == (503, 1)
    clock[0] += 30.0
    with ExitStack() as entered:
        for _ in range(2):
            entered.enter_context(admitted(work))
        with pytest.raises(HTTPError, match="2 requests at once") as refused:
            entered.enter_context(admitted(work))
        assert refused.value.status == 429
        entered.enter_context(admitted(work, "b"))
    assert work.num_requests == 0


def most_at_once(work):
    """Return how many are let in before one is refused."""
    with ExitStack() as entered:
        for number in range(10):
            try:
                entered.enter_context(admitted(work, str(number)))
            except HTTPError:
                return number
    return 10


def test_once_it_was_full_there_is_room_for_half_as_many_for_a_while(work, clock):
    for _ in range(2):
        assert most_at_once(work) == 4
        for _ in range(3):
            assert most_at_once(work) == 2  # and one is refused, which makes it no longer
            clock[0] += 7.0


def test_admission_is_refused_with_503_while_the_server_ends(work):
    work.is_ending = True
    with pytest.raises(HTTPError, match="shutting down") as refused, admitted(work):
        pass
    assert refused.value.status == 503


async def never():
    await asyncio.Event().wait()


def test_the_work_is_done_in_a_thread(work):
    async def ask():
        with admitted(work) as job:
            return await work.run(job, threading.current_thread, never)

    assert asyncio.run(ask()) is not threading.current_thread()


def test_work_is_cancelled_when_its_client_disconnects_or_the_server_ends(work):
    async def ask(go):
        async def is_gone():
            await never() if go is None else None

        with admitted(work) as job:
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()

            def wait():
                loop.call_soon_threadsafe(begun.set)
                with job._changed:
                    assert job._changed.wait_for(lambda: job.is_cancelled, 60)
                job.require_time()

            task = asyncio.create_task(work.run(job, wait, is_gone))
            if go is None:
                await begun.wait()
                work.cancel_all()
            wanted = pytest.raises(HTTPError, match="broken off") if go is None else pytest.raises(ClientDisconnected)
            with wanted:
                await task

    asyncio.run(ask("away"))
    asyncio.run(ask(None))
    assert work.num_requests == 0


def test_admitted_job_past_its_time_limit_is_answered_504(work):
    async def ask():
        with admitted(work, seconds=-1.0) as job:
            await work.run(job, lambda: 1, never)

    with pytest.raises(HTTPError) as refused:
        asyncio.run(ask())
    assert refused.value.status == 504


def test_work_that_does_not_notice_its_end_is_answered_without_it(work):
    free = threading.Event()

    async def ask():
        with admitted(work, seconds=0.0) as job:
            job.require_time = lambda: None  # it has begun in time
            await work.run(job, free.wait, never)

    with pytest.raises(HTTPError) as refused:
        asyncio.run(ask())
    assert refused.value.status == 504
    assert not work.close()
    free.set()
    assert work.close()


def test_work_is_interrupted_between_lines_when_its_time_is_over(make_bundle, work):
    translator = Translator(make_bundle())
    checks = []

    async def ask():
        with admitted(work) as job:

            def over_at_the_second():
                checks.append(1)
                if len(checks) == 3:  # the first is before the work
                    job.deadline = 0.0
                Job.require_time(job)

            job.require_time = over_at_the_second
            await work.run(job, lambda: translator.translate(["ein Hund"] * 10, extra_length=3), never)

    with pytest.raises(HTTPError) as refused:
        asyncio.run(ask())
    assert (refused.value.status, len(checks)) == (504, 3)


def test_an_error_of_work_whose_client_has_left_is_not_logged_as_unhandled(work):
    unhandled = []

    async def ask():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context["message"]))
        with admitted(work) as job:
            ended = threading.Event()
            job.cancel = ended.set

            def cancelled():
                ended.wait()
                raise HTTPError(503, "broken off")

            with pytest.raises(ClientDisconnected):
                await work.run(job, cancelled, lambda: asyncio.sleep(0))
        gc.collect()

    asyncio.run(ask())
    assert unhandled == []


def test_tokens_are_counted_by_side(metrics):
    metrics.translated(3, 5)
    metrics.translated(1, 1)
    text = metrics.text().decode()
    assert 'clearhead_tokens_total{side="source"} 4.0' in text
    assert 'clearhead_tokens_total{side="target"} 6.0' in text
