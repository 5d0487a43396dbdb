from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest
import torch

from clearhead.config import DecodeConfig
from clearhead.decoding import SearchOptions, score
from clearhead.decoding import helper_threads as team_module
from clearhead.decoding.helper_threads import Call, helpers
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.scheduler import search
from clearhead.kernels.library import library
from clearhead.kernels.structs import CONSTANTS, STRUCTS, Struct
from every_run import slow

pytestmark = pytest.mark.skipif(library() is None, reason="needs the compiled core")


class ObservedCore:
    """The core, seen by the helpers of a test."""

    def __init__(self) -> None:
        self.teams: list[Struct] = []
        self.arrived = threading.Semaphore(0)

    def assist(self, team):
        self.teams.append(team)
        self.arrived.release()
        library().assist(team)

    def dismiss(self, team):
        library().dismiss(team)


@pytest.fixture
def core(monkeypatch):
    """Let a test begin without helpers, and see what those do that it makes."""
    core = ObservedCore()
    with monkeypatch.context() as patch:
        patch.setattr(team_module, "library", lambda: core)
        helpers.begin()
        yield core
        assert_all_sleep(core)
    helpers.begin()


def assert_all_sleep(core):
    """Give every helper a team that is dismissed, which it looks at when it is done with those before."""
    for helper in helpers._threads:
        probe = STRUCTS["Team"]()
        library().dismiss(probe)
        helper.help(probe)
        while not any(team is probe for team in core.teams):
            assert core.arrived.acquire(timeout=60.0), "a helper does not come back"


def test_assist_returns_from_a_team_without_work():
    thread = threading.Thread(target=library().assist, args=(STRUCTS["Team"](),), daemon=True)
    thread.start()
    thread.join(60.0)
    assert not thread.is_alive()


def test_helpers_are_woken_once_for_a_call_and_sleep_when_it_ends(core):
    with helpers.call() as call:
        team = call.team(3)
        first = team.wake()
        for _ in range(2):
            assert core.arrived.acquire(timeout=60.0)
        assert len(helpers._threads) == 2
        assert [woken is first for woken in core.teams] == [True, True]
        assert team.wake() is first
    assert first.state == CONSTANTS["TO_LEAVE"]
    assert team.wake() is None
    assert_all_sleep(core)
    with helpers.call() as call:
        assert call.team(3).wake() is not first
        assert len(helpers._threads) == 2  # the same ones


def test_a_worker_that_is_to_work_alone_has_no_helpers(core):
    with helpers.call() as call:
        assert call.team(1).wake() is None
    assert not helpers._threads


def test_every_worker_of_a_call_has_helpers_of_its_own(core):
    with helpers.call() as call:
        teams = [call.team(3).wake() for _ in range(2)]
        assert teams[0] is not teams[1]
        for _ in range(4):
            assert core.arrived.acquire(timeout=60.0)
        assert [sum(woken is team for woken in core.teams) for team in teams] == [2, 2]


def test_concurrent_calls_have_no_helpers_until_one_remains(core):
    with helpers.call() as first:
        team = first.team(2)
        assert team.wake() is not None
        with helpers.call() as second:
            assert team.wake() is None
            assert second.team(2).wake() is None
        assert team.wake() is not None


def test_call_started_before_a_fork_has_no_helpers_in_the_child(core):
    with helpers.call() as call:
        team = call.team(2)
        assert team.wake() is not None
        helpers.begin()  # as in the child
        assert team.wake() is None
        with helpers.call() as another:
            assert team.wake() is None
            assert another.team(2).wake() is not None


def test_a_team_that_the_core_dismissed_is_not_woken_again(core):
    with helpers.call() as call:
        team = call.team(2)
        library().dismiss(team.wake())
        assert team.wake() is None


def test_garbage_collected_call_is_not_running(core):
    abandoned = helpers.call()
    abandoned.__enter__()
    assert len(helpers.calls) == 1
    del abandoned
    gc.collect()
    assert len(helpers.calls) == 0


def test_helpers_that_the_system_does_not_allow_are_done_without(core, refuse_second_thread):
    refuse_second_thread(RuntimeError("can't start new thread"))
    with helpers.call() as call:
        assert call.team(4).wake() is not None
    assert len(helpers._threads) == 1


# In a search


@pytest.fixture
def packed(make_sharp_model, monkeypatch):
    """Return a model wide enough for help to be worth it, where there are four CPUs."""
    monkeypatch.setattr("clearhead.runtime.threads.usable_cpus", lambda: 4)
    with torch.inference_mode():
        model = make_sharp_model(d_model=256, d_ff=512, num_heads=8, vocab_size=1_100, output_bias=True)
        return NativeEngine(model)


@pytest.fixture
def use_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def find(packed, sources, **settings):
    with torch.inference_mode():
        return sorted(search(packed, sources, [9] * len(sources), SearchOptions(DecodeConfig(beam_size=4, **settings))))


@pytest.mark.parametrize(
    ("num_threads", "num_sentences", "num_helpers"),
    [(1, 1, 0), (2, 1, 1), (3, 1, 2), (4, 1, 3), (9, 1, 3), (2, 2, 0), (3, 2, 0), (4, 2, 2), (4, 3, 0)],
)
def test_threads_that_have_no_sentence_help_and_change_no_bit(
    core, packed, make_sources, use_threads, monkeypatch, num_threads, num_sentences, num_helpers
):
    sizes, team = [], Call.team

    def spy(call, size):
        sizes.append(size)
        return team(call, size)

    sources = make_sources((7, 5, 6)[:num_sentences], 1_100)
    expected = find(packed, sources)
    use_threads(num_threads)
    monkeypatch.setattr(Call, "team", spy)
    assert find(packed, sources) == expected
    assert sum(size - 1 for size in sizes) == num_helpers
    # Not how many: a quick worker may find all sentences before another begins, whose helpers are then not woken.
    assert bool(helpers._threads) == bool(num_helpers)


def test_searches_at_once_find_the_same_and_end_when_they_are_abandoned(core, packed, make_sources, use_threads):
    sources = make_sources((7, 5, 6, 4, 3), 1_100)
    expected = find(packed, sources)
    use_threads(2)
    with torch.inference_mode():
        first = search(packed, sources, [9] * 5, SearchOptions(DecodeConfig(beam_size=4)))
        begun = [next(first)]
        assert find(packed, sources[:1]) == expected[:1]  # by one thread
        assert not helpers._threads
        assert sorted([*begun, *first]) == expected
        abandoned = search(packed, sources, [9] * 5, SearchOptions(DecodeConfig(beam_size=4)))
        next(abandoned)
    del abandoned
    gc.collect()
    assert len(helpers.calls) == 0
    assert find(packed, sources[:1]) == expected[:1]
    assert len(helpers._threads) == 1


WATCHED = ("native/search.py", "native/slots.py", "scheduler.py", "helper_threads.py")
"""Ctrl-C comes before every line of these that the calling thread runs."""


@pytest.mark.parametrize("num_sentences", [slow(1), 3])
def test_ctrl_c_before_any_line_leaves_nothing_running(core, packed, make_sources, use_threads, num_sentences):
    sources = make_sources((3, 2, 3)[:num_sentences], 1_100)
    with torch.inference_mode():
        expected = sorted(search(packed, sources, [2] * num_sentences, SearchOptions(DecodeConfig(beam_size=1))))
    use_threads(2)
    before, number, is_done = set(threading.enumerate()), 0, False
    tracer = sys.gettrace()  # of coverage, where it measures
    while not is_done:
        number += 1
        left = number

        def trace(frame, event, argument):
            nonlocal left
            if not frame.f_code.co_filename.endswith(tuple(f"decoding/{name}" for name in WATCHED)):
                return None
            if event == "line":
                left -= 1
                if not left:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        found = search(packed, sources, [2] * num_sentences, SearchOptions(DecodeConfig(beam_size=1)))
        try:
            with torch.inference_mode():
                sys.settrace(trace)
                list(found)
                is_done = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
        del found
        for thread in set(threading.enumerate()) - before:
            if thread.name != team_module.HELPER_NAME:
                thread.join(60.0)
                assert not thread.is_alive(), f"a worker still runs after Ctrl-C before line {number}"
        if helpers.calls:
            gc.collect()  # the traceback of an interrupted clean-up is a cycle
        assert len(helpers.calls) == 0, f"a call still counts as running after Ctrl-C before line {number}"
        assert_all_sleep(core)
    assert number > 50
    with torch.inference_mode():
        found = search(packed, sources, [2] * num_sentences, SearchOptions(DecodeConfig(beam_size=1)))
        assert sorted(found) == expected


def test_a_fork_waits_until_threads_that_made_calls_are_gone_for_the_system_too(monkeypatch, tmp_path):
    monkeypatch.setattr(team_module, "TASKS", tmp_path)
    numbers = []

    def call():
        with helpers.call():
            numbers.append(threading.get_native_id())

    caller = threading.Thread(target=call)
    caller.start()
    caller.join()
    task = tmp_path / str(numbers[0])
    task.touch()  # as if it still ended
    looks = []

    def look_again(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            task.unlink()

    monkeypatch.setattr(team_module.time, "sleep", look_again)
    helpers.let_threads_end()
    assert len(looks) == 3
    task.touch()
    helpers.let_threads_end()  # what was waited for is forgotten
    assert len(looks) == 3


EXIT = """
import torch
from clearhead.runtime import threads
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import SearchOptions, decode
from clearhead.decoding.helper_threads import Call, helpers
from clearhead.model import Transformer
threads.usable_cpus = lambda: 3
torch.set_num_threads(3)
sizes = {"d_model": 256, "num_heads": 8, "d_ff": 512, "num_encoder_layers": 1, "num_decoder_layers": 1}
model = Transformer(ModelConfig(vocab_size=1_100, **sizes)).eval()
decode(model, [[5, 7, 2]], SearchOptions(DecodeConfig(extra_length=5)))
assert len(helpers._threads) == 2
call = helpers.call()
assert call.__enter__().team(3).wake() is not None
"""


def test_a_process_ends_while_helpers_sleep_or_wait_for_work():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_scoring_counts_as_a_running_call(core, packed, make_sources, use_threads):
    use_threads(2)
    sources = make_sources((7, 5), 1_100)
    running = []
    score(packed, sources, sources, batch_tokens=1, on_progress=lambda count: running.append(len(helpers.calls)))
    assert running == [1, 1]
    assert len(helpers.calls) == 0
