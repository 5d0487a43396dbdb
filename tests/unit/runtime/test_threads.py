from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clearhead.errors import ConfigError
from clearhead.runtime import threads
from clearhead.runtime.threads import cpu_quota, prepare_openmp, usable_cpus


@pytest.fixture
def machine(tmp_path):
    """Return a function that writes files of /proc and /sys, and returns the directory that takes the place of /."""

    def make(**files: str):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="ascii")
        return tmp_path

    return lambda files: make(**files)


GROUP = "proc/self/cgroup"
V2 = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({GROUP: "0::/\n", f"{V2}/cpu.max": "max 100000\n"}, None),
        ({GROUP: "0::/\n", f"{V2}/cpu.max": "250000 100000\n"}, 2.5),
        ({GROUP: "0::/a/b\n", f"{V2}/a/b/cpu.max": "300000 100000\n", f"{V2}/a/cpu.max": "max 100000\n"}, 3.0),
        ({GROUP: "0::/a/b\n", f"{V2}/a/b/cpu.max": "max 100000\n", f"{V2}/a/cpu.max": "50000 100000\n"}, 0.5),
        # Seen from a container: the group's own directory is not there, its mount is.
        ({GROUP: "0::/../pod\n", f"{V2}/cpu.max": "100000 50000\n"}, 2.0),
        ({GROUP: "0::/\n", f"{V2}/cpu.max": "nonsense\n"}, None),
        ({GROUP: "0::/\n", f"{V2}/cpu.max": "100000\n"}, None),
        ({GROUP: "0::/\n"}, None),
        ({GROUP: "broken\n"}, None),
        ({}, None),
        (
            {
                GROUP: "4:memory:/x\n3:cpu,cpuacct:/x\n1:cpuset:/y\n0::/\n",
                f"{V2}/cpu,cpuacct/x/cpu.cfs_quota_us": "400000\n",
                f"{V2}/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
                f"{V2}/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                f"{V2}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            4.0,
        ),
        (
            {
                GROUP: "3:cpuacct,cpu:/x\n",
                f"{V2}/cpu/cpu.cfs_quota_us": "150000\n",
                f"{V2}/cpu/cpu.cfs_period_us": "100000\n",
            },
            1.5,
        ),
        ({GROUP: "3:cpu:/\n", f"{V2}/cpu/cpu.cfs_quota_us": "-1\n", f"{V2}/cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_the_smallest_quota_of_a_group_and_those_above_it_counts(machine, files, quota):
    assert cpu_quota(machine(files)) == quota


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
@pytest.mark.parametrize(
    ("bound", "quota", "usable"), [(8, None, 8), (8, 2.9, 2), (2, 6.0, 2), (4, 0.3, 1), (1, None, 1)]
)
def test_whole_cpus_that_the_process_is_bound_to_and_may_pay_for_are_usable(monkeypatch, bound, quota, usable):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(bound)))
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    assert usable_cpus() == usable


@pytest.mark.parametrize(("counted", "usable"), [(7, 7), (None, 1)])
def test_without_affinity_all_cpus_count_and_at_least_one(monkeypatch, counted, usable):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    assert usable_cpus() == usable


@pytest.fixture
def openmp(monkeypatch):
    """Return a function that prepares OpenMP where a user set these variables alone, and returns what is set then."""

    def prepared(**chosen):
        names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OPENBLAS_NUM_THREADS")
        for name in names:
            monkeypatch.setenv(name, chosen.get(name, ""))  # whatever it is afterwards, it is as before when this ends
            if name not in chosen:
                monkeypatch.delenv(name)
        prepare_openmp()
        return {name: os.environ[name] for name in names if name in os.environ}

    return prepared


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
@pytest.mark.parametrize(
    ("quota", "chosen", "expected"),
    [(None, {}, None), (2.0, {}, "2"), (2.0, {"OMP_NUM_THREADS": "5"}, "5"), (8.0, {}, None)],
)
def test_cpu_quota_sets_omp_num_threads_unless_set(openmp, monkeypatch, quota, chosen, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    assert openmp(**chosen).get("OMP_NUM_THREADS") == expected


def test_waiting_threads_soon_leave_the_cpu_to_others_unless_somebody_chose(openmp):
    assert 100 <= int(openmp()["GOMP_SPINCOUNT"]) <= 3_000
    assert openmp(GOMP_SPINCOUNT="7")["GOMP_SPINCOUNT"] == "7"
    assert "GOMP_SPINCOUNT" not in openmp(OMP_WAIT_POLICY="active")


def test_blas_has_one_thread_unless_somebody_chose(openmp):
    assert openmp()["OPENBLAS_NUM_THREADS"] == "1"
    assert openmp(OPENBLAS_NUM_THREADS="3")["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("siblings", "expected"),
    [
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, 2),  # two threads a core
        ({0: "0", 1: "1"}, 2),
        ({0: "0,4", 2: "2,6"}, 2),  # bound to one thread of each core
        ({0: None, 1: None, 2: None}, 3),  # the system does not say
    ],
)
def test_threads_by_default_are_the_cores_of_the_usable_cpus(tmp_path, monkeypatch, siblings, expected):
    for cpu, text in siblings.items():
        if text is not None:
            path = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            path.parent.mkdir(parents=True)
            path.write_text(f"{text}\n")
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(siblings), raising=False)
    assert threads.num_cores(tmp_path) == expected


@pytest.mark.parametrize(("given", "expected"), [("3", 3), (" 4,2 ", 4), ("0", 7), ("many", 7), ("", 7)])
def test_the_variable_of_openmp_sets_the_threads(monkeypatch, given, expected):
    monkeypatch.setattr(threads, "num_cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert threads.openmp_threads() == expected


def run(program, **environment):
    """Return what a Python process prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "", **environment}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_num_threads_is_the_same_with_and_without_pytorch():
    program = "from clearhead.runtime import threads; print(threads.num_threads(), 'torch' in sys.modules)"
    with_pytorch = run(f"import sys, torch; {program}")
    assert run(f"import sys; {program}") == with_pytorch.replace("True", "False")


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2"])
def test_impossible_numbers_of_threads_are_refused(count):
    before = threads.num_threads()
    with pytest.raises(ConfigError, match="a whole number of 1 or more, not"):
        threads.set_num_threads(count)
    assert threads.num_threads() == before


def test_threads_that_were_set_before_pytorch_was_imported_are_its_own_too():
    program = (
        "from clearhead.runtime import threads; threads.usable_cpus = lambda: 8; threads.set_num_threads(1);"
        "first = threads.num_threads(); import torch; print(first, threads.num_threads(), torch.get_num_threads())"
    )
    assert run(program) == "1 1 1"


def test_a_process_without_pytorch_forks_and_keeps_its_threads():
    program = (
        "import os, sys; from clearhead.runtime import threads; threads.usable_cpus = lambda: 8;"
        "threads.set_num_threads(3); child = os.fork();"
        "(os._exit(0 if (threads.num_threads(), 'torch' in sys.modules) == (3, False) else 1) if child == 0 else None);"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert run(program) == "0"


def test_pytorch_that_is_being_imported_by_another_thread_is_not_used(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import time; time.sleep(1)\nOutOfMemoryError, get_num_threads = RuntimeError, lambda: 7\n"
        "def set_num_threads(count): global get_num_threads; get_num_threads = lambda: count\n"
    )
    program = (
        "import os, sys, threading;"
        "from clearhead.decoding import sentence; from clearhead.runtime import device, threads;"
        "threads.usable_cpus = lambda: 8; threads.openmp_threads = lambda: 2; device._has_driver = lambda: False;"
        "threading.Thread(target=__import__, args=['torch']).start();\n"
        "while 'torch' not in sys.modules: pass\n"
        "print(threads.num_threads(), device.num_gpus(), sentence._out_of_memory() == (MemoryError,));"
        "child = os.fork();"
        "(os._exit(threads.num_threads()) if child == 0 else None);"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]));"
        "threads.set_num_threads(5); print(threads.num_threads(), len(sentence._out_of_memory()))"
    )
    assert run(program, PYTHONPATH=str(tmp_path)).split("\n") == ["2 0 True", "2", "5 2"]
