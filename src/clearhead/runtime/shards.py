"""Bulk work in shards: one function applied to every shard of a job, in this process or in several.

A shard is a small picklable description of a part of the work, such as a file and a range of its lines. Its result is
small as well, such as counts: what is large is written to a file.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import Pipe, get_context, parent_process
from typing import TYPE_CHECKING, Any, TypeVar

from clearhead.errors import ClearheadError
from clearhead.runtime.threads import num_threads, set_num_threads

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

Shard = TypeVar("Shard")
Result = TypeVar("Result")

FEWER_PROCESSES = "try fewer (--threads 1)"
"""Advice if a process was ended, for work with as many processes as threads."""

IN_FLIGHT = 2
"""Shards given out at a time for each worker, so that none waits for its next one."""


def run_shards(
    make_worker: Callable[[], Callable[[Shard], Result]],
    shards: Iterable[Shard],
    *,
    workers: int = 1,
    shares_threads: bool = True,
    advice: str = "use fewer",
) -> Generator[Result]:
    """Apply a function to every shard, and yield the results in the order of the shards.

    The same shard must give the same result and the same files, byte for byte, in whatever process it is done.

    Args:
        make_worker: Returns the function. It is called once in each process, so that the function may hold a tokenizer
            or an engine. It must be picklable: a function or class of a module, or a `functools.partial` of one.
        shards: Taken one by one, at most `IN_FLIGHT` for each worker before their results are yielded.
        workers: Number of processes; 1 means this process. They end with it or with the iteration, whatever they are
            doing. The main module of the program must be importable without effects (`if __name__ == "__main__":`).
        shares_threads: Whether the processes share the threads of this process; else each takes one for each CPU.
        advice: What to do if a process was ended, for the error message.

    Raises:
        ClearheadError: Any that the function or `make_worker` raises, for the first such shard in order; or if a
            process was ended.
    """
    if workers == 1:
        yield from map(make_worker(), shards)
        return
    theirs, ours = Pipe(duplex=False)
    context = get_context("spawn")
    has_begun = context.Event()
    begin = (make_worker, theirs, max(1, num_threads() // workers) if shares_threads else None, has_begun)
    executor = ProcessPoolExecutor(workers, context, _begin, begin)
    shards = iter(shards)
    pending: deque[Future[Result]] = deque()
    try:
        while True:
            for shard in islice(shards, IN_FLIGHT * workers - len(pending)):
                with _without_interrupts():  # processes that start here ignore Ctrl-C; this one ends them
                    pending.append(executor.submit(_work, shard))
            if not pending:
                return
            yield pending.popleft().result()
    except BrokenProcessPool:
        if not has_begun.is_set():
            raise ClearheadError(
                f"none of {workers} worker processes could begin: each runs the program's main file first; let its "
                f"calls follow `if __name__ == '__main__':`, or use one process"
            ) from None
        raise ClearheadError(
            f"one of {workers} worker processes was ended, perhaps because the memory was full; {advice}"
        ) from None
    finally:
        ours.close()  # ends the processes; one that is sending a result sends all of it first
        executor.shutdown(cancel_futures=True)
        theirs.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; processes that start in it never receive it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_make: Callable[[], Callable[[Any], Any]] | None = None
_function: Callable[[Any], Any] | None = None
_outside_work = threading.Lock()
"""Held except during `_work`: a process that ends while it sends a result leaves half of it, and the process that reads
it waits for the rest forever."""


def _begin(
    make_worker: Callable[[], Callable[[Any], Any]], parent: Connection, threads: int | None, has_begun: Event
) -> None:
    """Prepare a worker process, whose work ends as soon as the other end of `parent` is closed."""
    global _make
    # The function is made with the first shard: an error of an initializer would be lost.
    _make = make_worker
    has_begun.set()
    _outside_work.acquire()
    if threads is not None:
        set_num_threads(threads)
        os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizers library

    def end_work() -> None:
        with suppress(OSError):
            parent.poll(None)
        with _outside_work:
            os._exit(1)

    def end_with_parent() -> None:
        if process := parent_process():
            process.join()
        os._exit(1)

    for end in (end_work, end_with_parent):
        threading.Thread(target=end, daemon=True).start()


def _work(shard: Any) -> Any:
    global _function
    _outside_work.release()
    try:
        if _function is None:
            assert _make is not None, "the process was prepared"
            _function = _make()
        return _function(shard)
    finally:
        _outside_work.acquire()
