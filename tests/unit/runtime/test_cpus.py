from __future__ import annotations

import os

import pytest

from clearhead.runtime import cpus
from clearhead.runtime.cpus import cpu_quota, prepare_openmp, usable_cpus


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
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
    assert usable_cpus() == usable


@pytest.mark.parametrize(("counted", "usable"), [(7, 7), (None, 1)])
def test_without_affinity_all_cpus_count_and_at_least_one(monkeypatch, counted, usable):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    monkeypatch.setattr(cpus, "cpu_quota", lambda: None)
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
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
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
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda _: set(siblings), raising=False)
    assert cpus.num_cores(tmp_path) == expected


@pytest.mark.parametrize(("given", "expected"), [("3", 3), (" 4,2 ", 4), ("0", 7), ("many", 7), ("", 7)])
def test_the_variable_of_openmp_sets_the_threads(monkeypatch, given, expected):
    monkeypatch.setattr(cpus, "num_cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert cpus.openmp_threads() == expected
