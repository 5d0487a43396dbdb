"""Memory of concurrent work: it never exceeds its budget, and who asks first is served first."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from clearhead.serving.admission import MemoryBudget
from clearhead.serving.http_errors import HTTPError, timed_out


def no_limit():
    """Let it take as long as it takes."""


def test_work_waits_in_order_until_there_is_room():
    budget, order = MemoryBudget(10), []
    waits = [threading.Event() for _ in range(3)]

    def work(number, size):
        with budget.taken(size, waits[number].set):
            order.append(number)

    with ExitStack() as held:
        held.enter_context(budget.taken(7, no_limit))
        threads = [threading.Thread(target=work, args=one) for one in ((0, 12), (1, 1), (2, 5))]  # 12: all of it
        for thread, wait in zip(threads, waits, strict=True):
            thread.start()
            assert wait.wait(60)
        assert order == []
    for thread in threads:
        thread.join()
    assert order[0] == 0
    assert sorted(order) == [0, 1, 2]


def test_requests_leave_the_queue_at_their_deadline():
    def over():
        raise timed_out()

    budget = MemoryBudget(10)
    with budget.taken(6, no_limit):
        with pytest.raises(HTTPError), budget.taken(5, over):
            pass
        with budget.taken(4, over):  # there is room, so it does not wait
            pass
