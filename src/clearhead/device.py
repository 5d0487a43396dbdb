"""Where the model runs, and how that place is used well."""

from __future__ import annotations

import ctypes
import sys

import torch

from clearhead.errors import DeviceError

__all__ = ["has_fast_bf16", "keep_freed_memory", "resolve_device"]

# Options of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def resolve_device(name: str = "auto") -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:1` into a device that is there.

    `auto` is the first CUDA GPU, else the CPU.

    Raises:
        DeviceError: If the name means nothing or this machine has no such device.
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


def has_fast_bf16(device: torch.device) -> bool:
    """Tell whether the device multiplies matrices faster in bfloat16: GPUs since 2020, and CPUs with AMX."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported()


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next step instead of giving it back to the system and asking anew.

    Each page asked for anew costs an interrupt and a wipe, together a tenth of a training step. Elsewhere than on Linux
    with glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 * 2**20)  # the largest it takes; larger blocks are still asked for anew
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_M_TOP_PAD, 64 * 2**20)
