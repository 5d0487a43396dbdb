"""How many CPUs this process may keep busy."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

__all__ = ["cpu_quota", "prepare_openmp", "usable_cpus"]

_SPINS = "2000"
"""How often a thread looks again before it sleeps; GNU's own count is 300,000."""


def usable_cpus() -> int:
    """Return how many CPUs this process may keep busy: those it is bound to, as far as its cgroups' quotas allow.

    Of a quota whole CPUs count, at least one: threads that wait for each other need whole ones. Quotas are read once.
    """
    quota = cpu_quota()
    return _bound() if quota is None else max(1, min(_bound(), int(quota)))


def prepare_openmp() -> None:
    """Make OpenMP, with which PyTorch computes, heed quotas and other programs, if it is loaded later and nobody chose.

    By itself it starts a thread for each CPU that the process is bound to, whatever its quota. And its threads wait for
    each other busily, GNU's for milliseconds: where another program needs one of the CPUs, they take their turns from
    the very thread that they wait for (docs/performance.md).
    """
    if usable_cpus() < _bound():
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cpus()))
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)


def _bound() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPUs that the smallest quota of this process's cgroups and their parents gives; None without one.

    Args:
        root: Where `proc` and `sys` are; another one in tests.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in groups:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            for directory in _and_parents(root / "sys/fs/cgroup", group):
                quotas += _quota(*_numbers(directory / "cpu.max"))
        elif "cpu" in controllers.split(","):
            for mount in {controllers, "cpu"}:
                for directory in _and_parents(root / "sys/fs/cgroup" / mount, group):
                    limit = _numbers(directory / "cpu.cfs_quota_us")
                    quotas += _quota(*limit, *_numbers(directory / "cpu.cfs_period_us"))
    return min(quotas, default=None)


def _and_parents(mount: Path, group: str) -> list[Path]:
    """Return the directory of a cgroup and those above it; in a container, some are not there."""
    directory = mount / group.strip("/")
    return [path for path in (directory, *directory.parents) if path.is_relative_to(mount)]


def _numbers(path: Path) -> list[int]:
    """Return the whole numbers in a file; none if it cannot be read or says something else, such as `max`."""
    try:
        return [int(word) for word in path.read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []


def _quota(*times: int) -> list[float]:
    """Return the CPUs of a quota and a period, if there are both and they limit anything."""
    return [times[0] / times[1]] if len(times) == 2 and min(times) > 0 else []
