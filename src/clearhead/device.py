"""Where the model runs."""

from __future__ import annotations

import torch

from clearhead.errors import DeviceError

__all__ = ["resolve_device"]


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
    except RuntimeError:
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
