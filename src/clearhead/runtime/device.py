"""The model's device: choice, name, fast bfloat16; reuse of freed memory."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.errors import DeviceError
from clearhead.runtime.pytorch import imported_pytorch, needing_pytorch

if TYPE_CHECKING:
    import torch

# Options of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# More than any size of freed memory.
_ALL = 2**31 - 1


def resolve_device(name: str = "auto") -> str:
    """Return the device named `auto`, `cpu`, `cuda` or `cuda:1`, as PyTorch names it; require that it is available.

    `auto` is the first CUDA GPU if PyTorch is installed, else the CPU.

    Raises:
        ClearheadError: If only PyTorch could use the device, and is not installed.
        DeviceError: If the name is unknown or this machine has no such device.
    """
    if name == "auto":
        return "cuda" if num_gpus() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(name)):
        raise DeviceError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N")
    if name != "cpu" and _has_driver():
        with needing_pytorch(f"device {name!r}"):
            import torch  # noqa: F401
    available = ["cpu"] if name == "cpu" else [f"cuda:{index}" for index in range(num_gpus())]
    if not available or (":" in name and name not in available):
        names = ", ".join(available) or "no cuda device"
        raise DeviceError(f"device {name!r} is not available: this machine has {names}; use --device cpu or auto")
    return name


def num_gpus() -> int:
    """Return the number of GPUs that PyTorch can use; it is imported only where there is a driver for them."""
    if imported_pytorch() is None and not _has_driver():
        return 0
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _has_driver() -> bool:
    """Return whether there is NVIDIA's driver, or AMD's."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True


def device_name(device: torch.device | str) -> str:
    """Return the model name of a GPU or processor; the architecture if the name is unknown."""
    if str(device).startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), "") or platform.processor() or platform.machine()


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether matrix products are faster in bfloat16 on the device: GPUs since 2020, some CPUs."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return can_multiply_bf16()


def can_multiply_bf16() -> bool:
    """Return whether the CPU has bfloat16 product instructions: AMX, or AVX-512 BF16."""
    import torch

    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def keep_freed_memory(most: int = _ALL) -> None:
    """Make the C library keep freed memory for the next step instead of returning it to the system.

    A new page costs a page fault and is filled with zeros; together this takes a tenth of a training step. On systems
    other than Linux with glibc, nothing is changed.

    Args:
        most: Bytes to keep in each thread, at least; a smaller number than before changes nothing.
    """
    global _kept
    if most > _kept:
        _kept = most
        _set_malloc_options(
            (_M_MMAP_THRESHOLD, 32 * 2**20),  # the maximum; larger blocks are still allocated from the system
            (_M_TRIM_THRESHOLD, most),
            (_M_TOP_PAD, min(most // 16, 64 * 2**20)),
        )


_kept = 0


def return_freed_memory() -> None:
    """Make the C library return large freed blocks to the system at once, instead of keeping more of each larger size.

    For processes whose threads compute at times, such as a server's: each thread would keep the most that it ever used.
    It undoes `keep_freed_memory`, which changes nothing any more: an engine that is made later asks for it too. On
    systems other than Linux with glibc, nothing is changed.
    """
    global _kept
    _kept = _ALL
    _set_malloc_options((_M_MMAP_THRESHOLD, 128 * 2**10), (_M_TRIM_THRESHOLD, 128 * 2**10), (_M_TOP_PAD, 128 * 2**10))


def _set_malloc_options(*options: tuple[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        for option, value in options:
            mallopt(option, value)
