"""The model's device: choice, name, fast bfloat16; reuse of freed memory; number of CPU threads, also after a fork."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from pathlib import Path

import torch

from clearhead.errors import DeviceError
from clearhead.runtime.cpus import usable_cpus

# Options of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def resolve_device(name: str = "auto") -> torch.device:
    """Return the device named `auto`, `cpu`, `cuda` or `cuda:1`; require that it is available.

    `auto` is the first CUDA GPU, else the CPU.

    Raises:
        DeviceError: If the name is unknown or this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise DeviceError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N") from None
    match device.type:
        case "cpu":
            available = ["cpu"]
        case "cuda":
            available = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        case _:
            raise DeviceError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    if not available or (device.index is not None and f"{device.type}:{device.index}" not in available):
        found = ", ".join(available) or f"no {device.type} device"
        raise DeviceError(f"device {name!r} is not available: this machine has {found}; use --device cpu or auto")
    return device


def device_name(device: torch.device) -> str:
    """Return the model name of a GPU or processor; the architecture if the name is unknown."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), "") or platform.processor() or platform.machine()


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether matrix products are faster in bfloat16 on the device: GPUs since 2020, some CPUs."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return can_multiply_bf16()


def can_multiply_bf16() -> bool:
    """Return whether the CPU has bfloat16 product instructions: AMX, or AVX-512 BF16."""
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


@cache
def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next step instead of returning it to the system.

    A new page costs a page fault and is filled with zeros; together this takes a tenth of a training step. On systems
    other than Linux with glibc, nothing is changed.
    """
    _set_malloc_options(
        (_M_MMAP_THRESHOLD, 32 * 2**20),  # the maximum; larger blocks are still allocated from the system
        (_M_TRIM_THRESHOLD, 2**31 - 1),
        (_M_TOP_PAD, 64 * 2**20),
    )


def return_freed_memory() -> None:
    """Make the C library return large freed blocks to the system at once, instead of keeping more of each larger size.

    For processes whose threads compute at times, such as a server's: each thread would keep the most that it ever used.
    It undoes `keep_freed_memory`. On systems other than Linux with glibc, nothing is changed.
    """
    _set_malloc_options((_M_MMAP_THRESHOLD, 128 * 2**10), (_M_TRIM_THRESHOLD, 128 * 2**10), (_M_TOP_PAD, 128 * 2**10))


def _set_malloc_options(*options: tuple[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        for option, value in options:
            mallopt(option, value)


def num_threads() -> int:
    """Return the number of threads for a translation: PyTorch's, but at most one for each usable CPU.

    In a process forked from one that used clearhead, it is the parent's number, although PyTorch itself uses one there.
    """
    return max(1, min(_inherited_threads or torch.get_num_threads(), usable_cpus()))


def set_num_threads(count: int) -> None:
    """Set the number of threads of PyTorch and translations; in a forked process, PyTorch keeps using one."""
    global _inherited_threads
    if _inherited_threads:
        _inherited_threads = count
    else:
        torch.set_num_threads(count)


_inherited_threads = 0
"""In a forked process, the number of threads of its parent; otherwise 0."""


def _begin_in_child() -> None:
    """Correct the state after a fork: threads that are recorded as running do not exist in the child process.

    OpenMP's threads are gone, so PyTorch would wait for them forever; with a single thread it waits for none. The
    threads of the tokenizers library are gone too; this variable makes it use none.
    """
    global _inherited_threads
    _inherited_threads = _inherited_threads or torch.get_num_threads()
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
    # The default of the tokenizers library; without the variable, it prints a warning in every forked process.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
