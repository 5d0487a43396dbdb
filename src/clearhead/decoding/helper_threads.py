"""The threads that help a worker of the compiled core with its products: asleep unless one call alone is running."""

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

__all__ = ["HELPER_NAME", "Call", "Team", "helpers"]

TASKS = Path("/proc/self/task")
"""The threads that the system knows."""
MOST_CALLERS = 1_000
"""Threads that are remembered; beyond, those that have ended are forgotten."""
SECONDS_TO_END = 1.0
"""How long a fork waits at most for threads that end."""
HELPER_NAME = "clearhead helper"
"""The name of the helping threads."""


class Call:
    """A search or a scoring that is running."""

    def __init__(self, helpers: _Helpers) -> None:
        self.helpers = helpers
        self._teams: list[Team] = []
        self._num_taken = 0

    @property
    def is_alone(self) -> bool:
        """Whether no other call is running."""
        return len(self.helpers.calls) <= 1

    def team(self, size: int) -> Team:
        """Return the team of one worker: itself and helpers that no other worker of this call has."""
        team = Team(self, range(self._num_taken, self._num_taken + size - 1))
        self._num_taken += size - 1
        self._teams.append(team)
        return team

    def end(self) -> None:
        """Let all helpers go to sleep at once."""
        for team in self._teams:
            team.dismiss()


class Team:
    """A worker's helpers.

    Args:
        call: Whose worker it is.
        members: Which of them help.
    """

    def __init__(self, call: Call, members: range) -> None:
        self._call = call
        self._members = members
        self._struct = STRUCTS["Team"]()

    def wake(self) -> Struct | None:
        """Return what the next function of the core shares its products through, the helpers awake.

        None means that the worker goes on alone: there are no helpers, another call is running too, or the helpers were
        so often late that the core dismissed them.
        """
        if not self._members or self._struct.state == CONSTANTS["TO_LEAVE"] or not self._call.is_alone:
            return None
        self._call.helpers.wake(self._members, self._struct)
        return self._struct

    def dismiss(self) -> None:
        """Let the helpers go to sleep at once; without it they do after a millisecond."""
        core = library()
        if core is not None:
            core.dismiss(self._struct)


class _Helpers:
    """The helping threads of this process, and the calls that are running.

    Helpers of no use are no harm: whoever computes a product takes all the parts that nobody else has taken. So nothing
    here has to happen for a call to be right, and Ctrl-C may come between any two lines.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin without threads or calls, as also a forked process does."""
        self.calls: WeakSet[Call] = WeakSet()
        self._callers: set[int] = set()  # the system's numbers of threads that made calls
        self._threads: list[_Helper] = []

    @contextmanager
    def call(self) -> Iterator[Call]:
        """Count a call as running until the block ends, or until nobody holds it any more."""
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
        """Let some threads help a team; those of them that the system does not allow do not."""
        # No lock, which Ctrl-C could leave closed: two calls here at once only make a thread too many.
        with suppress(RuntimeError):  # the system allows no more threads
            while members.stop > len(self._threads):
                self._threads.append(_Helper())
        for helper in self._threads[members.start : members.stop]:
            helper.help(team)

    def let_threads_end(self) -> None:
        """Wait until the threads that made calls and have ended are gone for the system too.

        Python joins a thread that still gives MKL's memory back. In a process forked amid that, MKL's list of threads
        is half written, and its next product never ends.
        """
        alive = {thread.native_id for thread in threading.enumerate()}
        ended = {number for number in self._callers if number not in alive}
        self._callers -= ended
        until = time.monotonic() + SECONDS_TO_END
        while any((TASKS / str(number)).exists() for number in ended) and time.monotonic() < until:
            time.sleep(1e-4)


class _Helper:
    """A thread that sleeps until there is a team to help."""

    def __init__(self) -> None:
        self.team: Struct | None = None
        self._teams: SimpleQueue[Struct] = SimpleQueue()
        Thread(target=self._run, daemon=True, name=HELPER_NAME).start()

    def help(self, team: Struct) -> None:
        """Help a team, if that is not what it does already."""
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
    # In a forked process no thread is alive but the one that forked.
    os.register_at_fork(before=helpers.let_threads_end, after_in_child=helpers.begin)
