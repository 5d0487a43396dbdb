"""Bulk work in shards: order, bounds, errors, and processes that end with the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.runtime.shards import IN_FLIGHT, run_shards


class Numbered:
    """A worker that says in which process it is, and how many shards it has done."""

    def __init__(self, first: int) -> None:
        self.first, self.done = first, 0

    def __call__(self, shard: int) -> tuple[int, int, int]:
        if shard == 13:
            raise DataError(f"shard {shard} is no text")
        if shard == 17:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002 * (shard % 3))  # later shards overtake earlier ones
        self.done += 1
        return self.first + shard, os.getpid(), self.done


def refused() -> Callable[[int], int]:
    raise ConfigError("no such tokenizer")


def write_and_wait(directory: str, shard: int) -> None:
    (Path(directory) / str(os.getpid())).touch()
    time.sleep(600 if shard else 0)


def waiting(directory: str) -> Callable[[int], None]:
    return partial(write_and_wait, directory)


@pytest.mark.parametrize("workers", [1, 3])
def test_results_are_in_the_order_of_the_shards(workers):
    results = list(run_shards(partial(Numbered, 100), range(11), workers=workers))

    assert [number for number, _, _ in results] == list(range(100, 111))
    processes = {process for _, process, _ in results}
    assert (processes == {os.getpid()}) is (workers == 1)
    # Each process made its worker once: its shards are counted on.
    assert sorted(done for _, _, done in results) == sorted(
        count for process in processes for count in range(1, sum(of == process for _, of, _ in results) + 1)
    )


def test_shards_are_taken_as_they_are_needed():
    taken: list[int] = []

    def shards() -> Iterator[int]:
        for shard in range(12):
            taken.append(shard)
            yield shard

    for count, _ in enumerate(run_shards(partial(Numbered, 0), shards(), workers=2)):
        assert len(taken) <= count + 2 * IN_FLIGHT
    assert len(taken) == 12


def test_no_shards_are_no_results():
    assert list(run_shards(partial(Numbered, 0), [], workers=2)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_of_a_worker_are_raised_as_they_are(workers):
    results = run_shards(partial(Numbered, 0), range(10, 15), workers=workers)

    assert [next(results)[0] for _ in range(3)] == [10, 11, 12]
    with pytest.raises(DataError, match=r"^shard 13 is no text$"):
        next(results)
    with pytest.raises(ConfigError, match=r"^no such tokenizer$"):
        list(run_shards(refused, range(2), workers=workers))


def test_a_killed_worker_is_reported():
    with pytest.raises(ClearheadError, match=r"one of 2 worker processes was ended.* memory was full; take fewer$"):
        list(run_shards(partial(Numbered, 0), range(16, 20), workers=2, advice="take fewer"))


def test_a_program_whose_main_file_starts_processes_unasked_is_told_so(tmp_path):
    program = tmp_path / "unguarded.py"
    program.write_text(
        "from functools import partial\n"
        "from clearhead.errors import ClearheadError\n"
        "from clearhead.runtime.shards import run_shards\n"
        "try:\n"
        "    print(list(run_shards(partial(partial, abs), range(3), workers=2)))\n"
        "except ClearheadError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert ran.stdout.startswith("none of 2 worker processes could begin: ")
    assert "if __name__ == '__main__':" in ran.stdout
    assert "memory" not in ran.stdout


def rayon_threads(_: int) -> str | None:
    return os.environ.get("RAYON_NUM_THREADS")


def telling_threads() -> Callable[[int], str | None]:
    return rayon_threads


@pytest.mark.parametrize(("shares_threads", "expected"), [(True, "2"), (False, None)])
def test_processes_share_threads_unless_each_is_to_have_its_own(monkeypatch, shares_threads, expected):
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    monkeypatch.setattr("clearhead.runtime.shards.num_threads", lambda: 7)
    assert [*run_shards(telling_threads, range(2), workers=3, shares_threads=shares_threads)] == [expected] * 2


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(directory: Path) -> bool:
    """Wait for the processes that wrote their numbers into a directory."""
    processes = [int(path.name) for path in directory.iterdir()]
    for _ in range(3_000):
        if not any(map(is_running, processes)):
            return bool(processes)
        time.sleep(0.01)
    return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_processes_end_with_the_iteration(tmp_path):
    results = run_shards(partial(waiting, str(tmp_path)), range(5), workers=2)
    next(results)
    results.close()

    assert gone(tmp_path)


def large(shard: int) -> bytes:
    return bytes(50_000_000)


def make_large() -> Callable[[int], bytes]:
    return large


ENDED_WHILE_SENDING = """
from test_shards import make_large
from clearhead.runtime.shards import run_shards

if __name__ == "__main__":
    results = run_shards(make_large, range(9), workers=2)
    next(results)
    results.close()
    print("ended")
"""


def test_the_iteration_ends_while_a_process_sends_a_result(tmp_path):
    (program := tmp_path / "program.py").write_text(ENDED_WHILE_SENDING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    # Without an end within minutes it hangs.
    ran = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=200)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("ended\n", "", 0)


JOB = """
import sys
from functools import partial
from test_shards import waiting
from clearhead.runtime.shards import run_shards

if __name__ == "__main__":
    for _ in run_shards(partial(waiting, sys.argv[1]), range(5), workers=2):
        print("one", flush=True)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_program(tmp_path, how):
    (job := tmp_path / "job.py").write_text(JOB)
    (numbers := tmp_path / "numbers").mkdir()
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    program = subprocess.Popen(
        [sys.executable, str(job), str(numbers)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "one\n"
        if how == signal.SIGINT:
            os.killpg(program.pid, how)  # as a terminal does
        else:
            program.kill()
        _, said = program.communicate(timeout=100)
    finally:
        program.kill()

    assert program.returncode == -how
    assert said.count("Traceback") == (how == signal.SIGINT), "the workers say nothing"
    assert gone(numbers)
