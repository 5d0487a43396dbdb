"""The harness tells what became of a case: an attack that finds nothing is worth as much as its harness."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from harness import Case, Children, Outcome

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the attacks need Linux")


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children(1, seconds=120.0, preloads=False) as children:  # the cases here need nothing of clearhead
        yield children


def outcome(children: Children, function: str, **limits: float | int) -> Outcome:
    (verdict,) = children.judge([Case(0, "a case", f"test_harness:{function}", {}, **limits)])
    return verdict.outcome


def end_well() -> dict[str, str]:
    return {"outcome": Outcome.works, "detail": ""}


def raise_an_error() -> None:
    raise RuntimeError("untyped")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    time.sleep(3_600)


def take_turns() -> dict[str, str]:
    """Use half a second of a processor that three other processes use too."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    others = [pid for pid in (os.fork(), os.fork()) if pid]
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    if len(others) < 2:
        os._exit(0)
    return end_well()


def eat_memory() -> dict[str, str]:
    eaten = bytearray(os.urandom(1)) * (300 << 20)  # far more than a fork may have less of, such as pages of libraries
    return {"outcome": Outcome.works, "detail": str(len(eaten))}


def test_case_that_ends_normally_has_outcome_works(children):
    assert outcome(children, "end_well", memory=500 << 20) is Outcome.works


def test_an_error_that_escapes_is_a_finding(children):
    assert outcome(children, "raise_an_error") is Outcome.untyped


def test_a_crash_is_a_finding_of_its_case_and_the_next_case_runs(children):
    assert outcome(children, "crash") is Outcome.crashed
    assert outcome(children, "end_well") is Outcome.works


def test_a_hang_is_ended_and_is_a_finding(children):
    assert outcome(children, "hang", seconds=0.5) is Outcome.hung


def test_hang_limit_counts_only_own_processor_time(children):
    assert outcome(children, "take_turns", seconds=1.5) is Outcome.works  # the four need 2 s together


@pytest.mark.slow
def test_memory_beyond_the_limit_is_a_finding(children):
    assert outcome(children, "eat_memory", memory=100 << 20) is Outcome.memory
    assert outcome(children, "eat_memory", memory=500 << 20) is Outcome.works
