"""Helper threads of the compiled core: awake only while a single call is running."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from weakref import WeakSet

from clearhead.kernels.library import library
from clearhead.kernels.structs import CONSTANTS, STRUCTS, Struct

TASKS = Path("/proc/self/task")
"""The thread ids of this process, as Linux lists them."""
MOST_CALLERS = 1_000
"""Number of thread ids remembered; above it, those of ended threads are dropped."""
SECONDS_TO_END = 1.0
"""Maximum time that a fork waits for ended threads to disappear."""
HELPER_NAME = "clearhead helper"
"""Name of the helper threads."""


class Call:
    """A search or scoring call in progress."""

    def __init__(self, helpers: _Helpers) -> None:
        self.helpers = helpers
        self._teams: list[Team] = []
        self._num_taken = 0

    @property
    def is_alone(self) -> bool:
        """Whether this call is running, begun in this process, and no other.

        Its teams may have been copied by a fork while a helper was counted in them that does not exist in the child:
        the core would wait for it forever.
        """
        return len(self.helpers.calls) == 1 and self in self.helpers.calls

    def team(self, size: int) -> Team:
        """Return the team of one worker: the worker and helpers that no other worker of this call has."""
        team = Team(self, range(self._num_taken, self._num_taken + size - 1))
        self._num_taken += size - 1
        self._teams.append(team)
        return team

    def end(self) -> None:
        """Let all helpers sleep at once."""
        for team in self._teams:
            team.dismiss()


class Team:
    """The helper threads of one worker.

    Args:
        call: The call that the worker belongs to.
        members: Indices of the helper threads.
    """

    def __init__(self, call: Call, members: range) -> None:
        self._call = call
        self._members = members
        self._struct = STRUCTS["Team"]()

    def wake(self) -> Struct | None:
        """Wake the helpers and return the structure that the core shares its products through.

        Return None if the worker must run alone: there are no helpers, another call is running too, or the helpers were
        late so often that the core dismissed them.
        """
        if not self._members or self._struct.state == CONSTANTS["TO_LEAVE"] or not self._call.is_alone:
            return None
        self._call.helpers.wake(self._members, self._struct)
        return self._struct

    def dismiss(self) -> None:
        """Let the helpers sleep at once; otherwise they do after a millisecond."""
        core = library()
        if core is not None:
            core.dismiss(self._struct)


class _Helpers:
    """The helper threads of this process, and the calls in progress.

    A useless helper does no harm: whoever computes a product takes all parts that nobody else has taken. So results do
    not depend on anything here, and Ctrl-C may interrupt it at any line.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset to no threads and no calls; also called in a forked process."""
        self.calls: WeakSet[Call] = WeakSet()
        self._callers: set[int] = set()  # native ids of threads that made calls
        self._threads: list[_Helper] = []

    @contextmanager
    def call(self) -> Iterator[Call]:
        """Register a call as running until the block ends or the call is garbage-collected."""
        call = Call(self)
        self.calls.add(call)
        if len(self._callers) > MOST_CALLERS:
            self._callers = {thread.native_id for thread in threading.enumerate() if thread.native_id is not None}
        self._callers.add(threading.get_native_id())
        try:
            yield call
        finally:
            self.calls.discard(call)
            call.end()

    def wake(self, members: range, team: Struct) -> None:
        """Let some threads help a team; threads that the system does not allow are left out."""
        # No lock, because Ctrl-C could leave it locked. Two calls here at once only create one thread too many.
        with suppress(RuntimeError):  # the system allows no more threads
            while members.stop > len(self._threads):
                self._threads.append(_Helper())
        for helper in self._threads[members.start : members.stop]:
            helper.help(team)

    def let_threads_end(self) -> None:
        """Wait until the system has removed the ended threads that made calls.

        Python can join a thread that is still returning MKL's memory. In a process forked at that moment, MKL's list of
        threads is half written, and its next product never ends.
        """
        alive = {thread.native_id for thread in threading.enumerate()}
        ended = {number for number in self._callers if number not in alive}
        self._callers -= ended
        until = time.monotonic() + SECONDS_TO_END
        while any((TASKS / str(number)).exists() for number in ended) and time.monotonic() < until:
            time.sleep(1e-4)


class _Helper:
    """A thread that sleeps until it gets a team to help."""

    def __init__(self) -> None:
        self.team: Struct | None = None
        self._teams: SimpleQueue[Struct] = SimpleQueue()
        Thread(target=self._run, daemon=True, name=HELPER_NAME).start()

    def help(self, team: Struct) -> None:
        """Help a team, unless the thread already does."""
        if self.team is not team:
            self.team = team
            self._teams.put(team)

    def _run(self) -> None:
        core = library()
        assert core is not None
        while True:
            team = self._teams.get()
            core.assist(team)
            if self.team is team:
                self.team = None


helpers = _Helpers()

if hasattr(os, "register_at_fork"):
    # In a forked process only the forking thread is alive.
    os.register_at_fork(before=helpers.let_threads_end, after_in_child=helpers.begin)
