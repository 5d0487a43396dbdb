"""What a test leaves behind: threads, child processes and sockets that outlive it and would fail its neighbour."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from typing import NamedTuple

import psutil
import pytest

SECONDS_TO_END = 60.0
"""How long something that has been told to end may take on a busy machine; only a test that fails waits so long."""
SECONDS_TO_COLLECTION = 1.0
"""How long something may end by itself before garbage is collected, which takes as long as a hundred looks."""
_PR_SET_CHILD_SUBREAPER = 36


class Running(NamedTuple):
    """What runs in this process or was started by it."""

    threads: frozenset[threading.Thread]
    children: frozenset[psutil.Process]
    sockets: frozenset[str]


def adopt_orphans() -> None:
    """Make this process the parent of what its children leave behind, so that it is seen (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def running() -> Running:
    """Return all that runs now."""
    return Running(frozenset(_threads()), frozenset(_children()), frozenset(_sockets()))


def _threads() -> Iterator[threading.Thread]:
    from clearhead.decoding.helper_threads import HELPER_NAME  # not before shapes are checked

    # Both are the whole process's: helpers sleep between the calls that they help, and the first bar of progress that
    # transformers makes, shown or not, starts a thread that looks after all later ones.
    whole = {HELPER_NAME, "tqdm_monitor"}
    for thread in threading.enumerate():
        # A thread of C that called Python once stays listed after its end.
        if thread.name not in whole and not isinstance(thread, threading._DummyThread):
            yield thread


def _children() -> Iterator[psutil.Process]:
    # Of the whole process as well, but what the second one forks is a test's.
    server = forkserver._forkserver._forkserver_pid
    shared = {resource_tracker._resource_tracker._pid, server}
    pids = {*_children_of(os.getpid()), *(() if server is None else _children_of(server))}
    for pid in pids - shared:
        with suppress(psutil.NoSuchProcess):
            # What reports a browser's crashes ends with it, and becomes our child at some moment after its start.
            if not (child := psutil.Process(pid)).name().startswith("chrome_crashpad"):
                yield child


def _children_of(pid: int) -> list[int]:
    """Return the child processes: Linux lists them, elsewhere a look at all processes takes milliseconds."""
    with suppress(OSError):
        found = list[int]()
        for task in os.listdir(f"/proc/{pid}/task"):  # no `Path`, which takes longer: this is done twice a test
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
        return found
    with suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def _sockets() -> Iterator[str]:
    """Return the open sockets, each as the system calls it (Linux)."""
    with suppress(FileNotFoundError):
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                name = os.readlink(f"/proc/self/fd/{number}")
                if name.startswith("socket:"):
                    yield name


_told: set[str] = set()
"""What a test has failed for already: the check at the end of all tests does not fail for it again."""


def fail_if_left(before: Running) -> None:
    """Wait for what has been started since; fail, and say what it is, if it does not end."""
    start = time.monotonic()
    collection = SECONDS_TO_COLLECTION
    while left := [name for name in _left(before) if name not in _told]:
        waited = time.monotonic() - start
        if waited > SECONDS_TO_END:
            _told.update(left)
            pytest.fail("left behind: " + ", ".join(left), pytrace=False)
        if waited > collection:
            gc.collect()  # so that an unclosed file or socket in a cycle is reported here, not in a later test
            collection *= 2
        time.sleep(0.01)


def _left(before: Running) -> list[str]:
    now = running()
    return sorted(
        [f"thread {thread.name!r} ({thread.ident})" for thread in now.threads - before.threads]
        + [f"process {child.pid} ({_command(child)})" for child in now.children - before.children if _runs(child)]
        + list(now.sockets - before.sockets)
    )


def _runs(child: psutil.Process) -> bool:
    """Return whether a process has not ended; its status is left to whoever waits for it."""
    try:
        return child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command(child: psutil.Process) -> str:
    try:
        return " ".join(child.cmdline()) or child.name()
    except psutil.Error:
        return "ended"
