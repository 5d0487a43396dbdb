"""Number of threads: CPUs that this process may use (affinity, cgroup quotas), OpenMP's variables to match, forks."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from clearhead.errors import ConfigError
from clearhead.runtime.pytorch import imported_pytorch

_SPINS = "2000"
"""Iterations that a waiting thread spins before it sleeps; GNU's default is 300,000."""


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, limited by its CPU affinity and its cgroups' quotas.

    A quota is rounded down to whole CPUs, at least one, because threads that wait for each other need whole ones.
    Quotas are read once.
    """
    quota = cpu_quota()
    return _bound() if quota is None else max(1, min(_bound(), int(quota)))


def prepare_openmp() -> None:
    """Set variables of OpenMP and BLAS to respect quotas and other programs, unless the user has set them.

    This must run before NumPy and PyTorch, which computes with OpenMP, are loaded. By default, OpenMP starts a thread
    for each CPU of the process's affinity, whatever its quota. Its threads spin while they wait for each other, GNU's
    for milliseconds. If another program needs one of the CPUs, the spinning threads take time from the very thread that
    they wait for (docs/performance.md).
    """
    if usable_cpus() < _bound():
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cpus()))
    # NumPy's BLAS starts its threads when it is imported, which takes 20 ms; nothing here needs them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)


def openmp_threads() -> int:
    """Return how many threads PyTorch uses by default: OpenMP's variable, else one for each core of the usable CPUs."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(given) if given.isdecimal() and int(given) else num_cores()


def num_cores(root: Path = Path("/")) -> int:
    """Return the number of cores of the CPUs that this process is bound to; several CPUs may be threads of one core.

    Args:
        root: Directory that contains `sys`; a different one in tests.
    """
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len({_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or cpu for cpu in cpus})


def _bound() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the smallest CPU quota of this process's cgroups and their parents, in CPUs; None without a quota.

    Args:
        root: Directory that contains `proc` and `sys`; a different one in tests.
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
    """Return the directories of a cgroup and its parents; in a container, some do not exist."""
    directory = mount / group.strip("/")
    return [path for path in (directory, *directory.parents) if path.is_relative_to(mount)]


def _numbers(path: Path) -> list[int]:
    """Return the integers in a file; empty if it cannot be read or contains other text, such as `max`."""
    try:
        return [int(word) for word in _text(path).split()]
    except ValueError:
        return []


def _text(path: Path) -> str:
    """Return the text of a file of the system; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


def _quota(*times: int) -> list[float]:
    """Return quota divided by period, in CPUs; empty if either is missing or there is no limit."""
    return [times[0] / times[1]] if len(times) == 2 and min(times) > 0 else []


def num_threads() -> int:
    """Return the number of threads for a translation: PyTorch's, but at most one for each usable CPU.

    Without PyTorch it is the number that PyTorch would use. In a process forked from one that used clearhead, it is the
    parent's number, although PyTorch itself uses one there.
    """
    return max(1, min(_inherited_threads or _pytorch_threads(), usable_cpus()))


def _pytorch_threads() -> int:
    torch = imported_pytorch()
    return openmp_threads() if torch is None else torch.get_num_threads()


def set_num_threads(count: int) -> None:
    """Set the number of threads of PyTorch and translations; in a forked process, PyTorch keeps using one.

    Raises:
        ConfigError: If it is not a whole number of 1 or more.
    """
    if type(count) is not int or count < 1:
        raise ConfigError(f"the number of threads must be a whole number of 1 or more, not {count!r}")
    global _inherited_threads
    if _inherited_threads:
        _inherited_threads = count
    elif sys.modules.get("torch") is not None:
        import torch  # this waits if another thread is importing it

        torch.set_num_threads(count)
    else:
        os.environ["OMP_NUM_THREADS"] = str(count)  # PyTorch reads it if it is imported later


_inherited_threads = 0
"""In a forked process, the number of threads of its parent; otherwise 0."""


def _begin_in_child() -> None:
    """Correct the state after a fork: threads that are recorded as running do not exist in the child process.

    OpenMP's threads are gone, so PyTorch would wait for them forever; with a single thread it waits for none. The
    threads of the tokenizers library are gone too; this variable makes it use none.
    """
    global _inherited_threads
    if (torch := imported_pytorch()) is not None:
        _inherited_threads = _inherited_threads or torch.get_num_threads()
        torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
    # The default of the tokenizers library; without the variable, it prints a warning in every forked process.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
