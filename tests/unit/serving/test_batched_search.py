"""One batch for many, in this process or another: each gets what it would get alone, within its time and its tokens.

The other process is a thread here, at the other end of a pipe.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import Pipe

import numpy as np
import pytest
import torch

from clearhead.config import DecodeConfig
from clearhead.decoding import NO_PREFIX, PyTorchEngine, SearchOptions, Shortlist, decode, make_engine
from clearhead.decoding.neighbours import Neighbours, Pair
from clearhead.errors import ModelError
from clearhead.serving import batches, search_process
from clearhead.serving.batched_search import Job, SharedSearch
from clearhead.serving.batches import Batches
from clearhead.serving.http_errors import HTTPError, place_of
from clearhead.serving.search_process import SearchProcess, run_searches

SOURCES = [[5, 9, 11, 2], [7, 2], [30, 31, 32, 33, 34, 35, 2], [12, 13, 2]]


class Counted:
    """Records its calls."""

    def __init__(self):
        self.most_in_flight = 0
        self.num_translated = 0

    def waited(self, seconds):
        assert seconds >= 0

    def entered(self, in_flight):
        self.most_in_flight = max(self.most_in_flight, in_flight)

    def translated(self, source_tokens, target_tokens):
        self.num_translated += 1


@pytest.fixture(scope="module")
def bundle(make_bundle):
    return make_bundle()


@pytest.fixture(scope="module")
def engine(bundle):
    return make_engine(bundle.model)


@pytest.fixture
def counted():
    return Counted()


@contextmanager
def apart(counted):
    ours, theirs = Pipe()

    def process():
        with theirs:
            run_searches(theirs, 32, 2)

    thread = threading.Thread(target=process, daemon=True)
    thread.start()
    try:
        with closing(SearchProcess(ours, counted)) as there:
            yield there
    finally:
        thread.join()
    wait_until(lambda: there.is_ended)


@contextmanager
def asking(counted):
    """Yield what asks another process, and the end of the pipe that this process would have."""
    ours, theirs = Pipe()
    with closing(SearchProcess(ours, counted)) as there, theirs:
        yield there, theirs


@pytest.fixture(params=["here", "apart"])
def search(request, counted):
    with closing(Batches(32, 2, counted)) if request.param == "here" else apart(counted) as searches:
        yield SharedSearch(searches)


def job(*, seconds=60.0, max_tokens=10_000, client="a"):
    return Job(client, time.monotonic() + seconds, max_tokens)


@pytest.fixture
def core_engine(make_bundle):
    return make_engine(make_bundle(d_model=64, num_heads=2, d_k=16, d_v=32, d_ff=96).model)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_neighbours_are_consulted_in_a_batch_with_sentences_that_have_none(search, core_engine, beam_size):
    """The first search, of sentences without neighbours, opens the batch, and needs no scores."""
    options = SearchOptions(DecodeConfig(beam_size=beam_size), scores=False)
    pair = Pair(tuple(SOURCES[0]), (21, 22, 2))
    near = [Neighbours((pair,), 0.99), None, None, None]
    alone = ask(search, core_engine, options)
    given = [NO_PREFIX] * len(SOURCES), [], near
    consulted = search.decoder(job())(core_engine, SOURCES, options, None, *given)
    assert tokens(consulted) == tokens(decode(core_engine, SOURCES, options, neighbours=near))
    assert tokens(consulted)[0][0][0] == 21
    assert tokens(consulted)[1:] == tokens(alone)[1:]


def tokens(found):
    return [[hypothesis.tokens for hypothesis in group] for group in found]


def ask(search, engine, options, one=None, sources=SOURCES):
    return search.decoder(one or job())(engine, sources, options, None, [NO_PREFIX] * len(sources), [])


@pytest.fixture
def stuck(bundle, monkeypatch):
    """Return an engine whose every step waits until it is let go, and then fails if it has an error."""
    engine = PyTorchEngine(bundle.model)
    engine.go, engine.error = threading.Event(), None
    make_slots = engine.slots

    def slots(*arguments):
        made = make_slots(*arguments)
        step = made.step

        def wait(active):
            assert engine.go.wait(60)
            if engine.error is not None:
                raise engine.error
            return step(active)

        made.step = wait
        return made

    engine.slots = slots
    monkeypatch.setattr(search_process, "make_engine", lambda *_: engine)
    return engine


def wait_until_read(search):
    """Wait until whoever searches has read all that was asked so far, withdrawals among it: a `sweep` is answered."""
    search.searches.sweep()
    wait_until(lambda: getattr(search.searches, "_unheard_since", None) is None)


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


def test_concurrent_requests_get_the_hypotheses_of_decode(search, engine, bundle, counted):
    options = SearchOptions(bundle.decode, num_best=3)
    wanted = tokens(decode(engine, SOURCES, options))
    with ThreadPoolExecutor(8) as threads:
        jobs = [job(client=str(number % 3)) for number in range(40)]
        found = list(threads.map(lambda one: ask(search, engine, options, one), jobs))
    assert list(map(tokens, found)) == [wanted] * 40
    assert counted.num_translated == 40 * len(SOURCES)
    assert search.searches.num_open == 0


def test_sentences_of_several_requests_are_in_flight_at_once(search, stuck, bundle, counted):
    options = SearchOptions(bundle.decode)
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask, search, stuck, options) for _ in range(3)]
        wait_until(lambda: search.searches.num_open == 3 * len(SOURCES))
        stuck.go.set()
        assert [len(one.result(60)) for one in asked] == [len(SOURCES)] * 3
    assert counted.most_in_flight > len(SOURCES)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_search_works_where_setpriority_is_not_permitted(search, engine, bundle, monkeypatch):
    def refuse(*_):
        asked.append(True)
        raise PermissionError

    asked = []
    monkeypatch.setattr(os, "setpriority", refuse)
    options = SearchOptions(bundle.decode)
    assert tokens(ask(search, engine, options)) == tokens(decode(engine, SOURCES, options))
    assert asked


def test_searches_of_another_kind_have_a_batch_of_their_own_up_to_a_bound(search, engine, bundle):
    kinds = [SearchOptions(bundle.decode, num_best=count) for count in (1, 2, 3)]
    for options in kinds:  # an idle one makes room
        assert tokens(ask(search, engine, options)) == tokens(decode(engine, SOURCES, options))


def test_requests_beyond_the_bound_on_search_kinds_are_answered_503(search, stuck, bundle):
    kinds = [SearchOptions(bundle.decode, num_best=count) for count in (2, 3, 4)]
    with ThreadPoolExecutor(2) as threads:
        held = [threads.submit(ask, search, stuck, options) for options in kinds[:2]]
        wait_until(lambda: search.searches.num_open == 2 * len(SOURCES))
        with pytest.raises(HTTPError, match="too many kinds") as refused:
            ask(search, stuck, kinds[2])
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        stuck.go.set()
        # What the model does if nothing else is asked for has room.
        assert len(search.decoder(job(), bundle.decode)(stuck, SOURCES, SearchOptions(bundle.decode))) == len(SOURCES)
        assert [len(one.result(60)) for one in held] == [len(SOURCES)] * 2


def test_usual_options_share_one_batch_for_all_target_languages(counted, engine, bundle):
    with closing(Batches(32, 2, counted)) as own:
        usual = SharedSearch(own).decoder(job(), bundle.decode)
        for language in (None, "de", "fr"):
            options = SearchOptions(bundle.decode.model_copy(update={"target_lang": language}))
            assert len(usual(engine, SOURCES, options)) == len(SOURCES)
        assert len(own._batches) == 1


def test_a_job_without_time_is_refused(search, engine, bundle):
    with pytest.raises(HTTPError) as refused:
        ask(search, engine, SearchOptions(bundle.decode), job(seconds=-1.0))
    assert refused.value.status == 504


def test_cancelled_and_late_requests_leave_the_search(search, stuck, bundle, counted):
    options = SearchOptions(bundle.decode)
    gone, late, patient = job(), job(seconds=0.2), job()
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask, search, stuck, options, one) for one in (gone, late, patient)]
        gone.cancel()
        for refused, status in ((asked[0], 503), (asked[1], 504)):
            error = refused.exception(60)
            assert isinstance(error, HTTPError)
            assert error.status == status
        wait_until_read(search)
        stuck.go.set()
        assert tokens(asked[2].result(60)) == tokens(decode(stuck, SOURCES, options))
    wait_until(lambda: not search.searches.num_open and counted.num_translated == len(SOURCES))


def test_search_error_reaches_all_waiting_requests_and_later_ones_succeed(search, stuck, bundle):
    options = SearchOptions(bundle.decode)
    stuck.error = ModelError("broken")
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask, search, stuck, options) for _ in range(2)]
        stuck.go.set()
        errors = [one.exception(60) for one in asked]
    assert [(str(error), place_of(error).split(":")[0]) for error in errors] == [("broken", "wait")] * 2
    stuck.error = None
    assert tokens(ask(search, stuck, options)) == tokens(decode(stuck, SOURCES, options))


def test_thread_start_failure_fails_only_the_request_that_needs_a_thread(search, engine, bundle, monkeypatch):
    def refuse(*_, **named):
        raise RuntimeError("can't start new thread")

    options = SearchOptions(bundle.decode)
    wanted = tokens(ask(search, engine, options))
    with monkeypatch.context() as patch:
        patch.setattr(batches, "Thread", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            ask(search, engine, SearchOptions(bundle.decode, num_best=2))
        assert tokens(ask(search, engine, options)) == wanted
    assert search.searches.num_open == 0


def test_search_process_applies_the_shortlist_of_a_request(search, engine, bundle):
    listed = Shortlist(np.array([2, 11, 12], dtype=np.int32), np.full((286, 2), -1, dtype=np.int32))
    options = SearchOptions(bundle.decode, shortlist=listed)
    found = tokens(ask(search, engine, options))
    assert found == tokens(decode(engine, SOURCES, options))
    assert found != tokens(ask(search, engine, SearchOptions(bundle.decode)))


def test_unused_engines_are_freed_in_the_search_process(counted, bundle, monkeypatch):
    made = []

    def make(*arguments):
        made.append(weakref.ref(engine := make_engine(*arguments)))
        return engine

    monkeypatch.setattr(search_process, "make_engine", make)
    monkeypatch.setattr(batches, "LINGER_SECONDS", 0.0)
    with apart(counted) as there:
        for number in range(2):  # the second one is made after the first is gone, perhaps at the same address
            engine = make_engine(bundle.model)
            assert len(ask(SharedSearch(there), engine, SearchOptions(bundle.decode))) == len(SOURCES)
            assert len(made) == number + 1
            del engine

            def is_gone():
                there.sweep()
                return made[-1]() is None

            wait_until(is_gone)
            assert not there._known  # another engine may have its address


def test_requests_are_answered_503_when_the_search_process_ends(counted, engine, bundle):
    options = SearchOptions(bundle.decode)
    with asking(counted) as (there, theirs), ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask, SharedSearch(there), engine, options) for _ in range(2)]
        assert pickle.loads(theirs.recv_bytes())[0] == "make"
        theirs.send_bytes(pickle.dumps([("made", None)]))
        assert {pickle.loads(theirs.recv_bytes())[0] for _ in asked} == {"search"}
        theirs.close()
        refused = [one.exception(60) for one in asked]
    assert there.is_ended
    for thing in (engine, make_engine(bundle.model)):
        with pytest.raises(HTTPError) as found:
            ask(SharedSearch(there), thing, options)
        refused.append(found.value)
    assert {(one.status, one.message) for one in refused} == {(503, "the process that searches has ended; ask again")}
    assert there.num_open == 0


def test_requests_to_a_stuck_search_process_end_at_their_deadline(counted, engine, bundle):
    options = SearchOptions(bundle.decode)
    # Told that it has ended before the threads are waited for.
    with asking(counted) as (there, theirs), ThreadPoolExecutor(3) as threads, theirs:
        search = SharedSearch(there)
        first = threads.submit(ask, search, engine, options, job(seconds=0.5))
        assert pickle.loads(theirs.recv_bytes())[0] == "make"
        theirs.send_bytes(pickle.dumps([("made", None)]))
        # More than a pipe holds.
        much = threads.submit(ask, search, engine, options, job(seconds=0.5, max_tokens=10**9), SOURCES * 4_000)
        assert [one.exception(60).status for one in (first, much)] == [504, 504]
        threads.submit(there.sweep).result(60)


def test_freeze_loaded_objects_exempts_them_from_garbage_collection(counted, engine, bundle, spared):
    with apart(counted) as there:
        ask(SharedSearch(there), engine, SearchOptions(bundle.decode))
    assert spared == [True]
    loaded = [[]]
    assert any(one is loaded for one in gc.get_objects())
    batches.freeze_loaded_objects()
    assert not any(one is loaded for one in gc.get_objects())


def test_submit_failure_in_the_search_process_fails_only_its_request(counted, engine, bundle, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("can't start new thread")

    options = SearchOptions(bundle.decode)
    with apart(counted) as there, monkeypatch.context() as patched:
        patched.setattr(Batches, "submit", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            ask(SharedSearch(there), engine, options)
        patched.undo()
        assert tokens(ask(SharedSearch(there), engine, options)) == tokens(decode(engine, SOURCES, options))


@pytest.mark.parametrize("broken", ["here", "apart"])
def test_message_handler_failure_in_either_process_ends_the_search(counted, engine, bundle, monkeypatch, broken):
    def fail(*_):
        raise MemoryError

    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda of: reported.append((of.thread.name, of.exc_type)))
    with apart(counted) as there:
        if broken == "here":
            there._handlers["found"] = fail
        else:
            monkeypatch.setattr(search_process._MessageHandlers, "search", fail)
        with pytest.raises(HTTPError, match="has ended"):
            ask(SharedSearch(there), engine, SearchOptions(bundle.decode))
        assert there.is_ended
    thread = "clearhead answers" if broken == "here" else "clearhead questions"
    assert reported == [(thread, MemoryError)]


def test_request_waiting_for_an_engine_is_answered_503_when_the_process_ends(counted, engine, bundle):
    with asking(counted) as (there, theirs), ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask, SharedSearch(there), engine, SearchOptions(bundle.decode))
        assert pickle.loads(theirs.recv_bytes())[0] == "make"
        theirs.close()
        assert asked.exception(60).status == 503


def test_an_engine_that_cannot_be_made_there_is_a_failure_here(counted, engine, bundle, monkeypatch):
    class OfHere(Exception):
        """It cannot be told another process."""

    def fail(*_):
        raise OfHere

    monkeypatch.setattr(search_process, "make_engine", fail)
    with apart(counted) as there:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="OfHere in the process that searches"):
                ask(SharedSearch(there), engine, SearchOptions(bundle.decode))


def test_job_above_max_tokens_is_answered_413(search, engine, bundle):
    options = SearchOptions(bundle.decode)
    used = sum(2 * len(source) + bundle.decode.extra_length for source in SOURCES)
    one = job(max_tokens=2 * used - 1)
    ask(search, engine, options, one)
    with pytest.raises(HTTPError, match="too many tokens") as refused:
        ask(search, engine, options, one)
    assert refused.value.status == 413


def test_search_of_no_sources_is_empty(search, engine, bundle):
    assert ask(search, engine, SearchOptions(bundle.decode), sources=[]) == []
    assert not torch.is_inference_mode_enabled()
