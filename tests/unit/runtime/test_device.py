"""What a device is called, which one is used, and what becomes of freed memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from clearhead.errors import ClearheadError, DeviceError
from clearhead.runtime import device
from clearhead.runtime.device import device_name, resolve_device
from every_run import slow


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (
            "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) @ 2.60GHz\n\nprocessor\t: 1\nmodel name\t: B\n",
            "Intel(R) Xeon(R) @ 2.60GHz",
        ),
        ("processor\t: 0\nmodel name\t:\n", "aarch64"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", "aarch64"),
        (None, "aarch64"),
    ],
)
def test_a_processor_is_called_as_its_maker_calls_it(monkeypatch, cpuinfo, name):
    def read_text(path, **_):
        if cpuinfo is None:
            raise FileNotFoundError(path)
        return cpuinfo

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert device_name(torch.device("cpu")) == name


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it asks Linux for the memory of a process")
@pytest.mark.parametrize("returns", [True, slow(False)])
def test_return_freed_memory_returns_it_to_the_system(returns):
    program = f"""
import resource
import torch
from clearhead.runtime.device import keep_freed_memory, return_freed_memory
keep_freed_memory()
if {returns}:
    return_freed_memory()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = resident()
blocks = [torch.ones(4 * 2**20) for _ in range(10)]  # 16 MiB each
del blocks
print((resident() - before) >> 20)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (int(ran.stdout) < 16) == returns


def test_keep_freed_memory_only_raises_the_limit(monkeypatch):
    kept = []
    monkeypatch.setattr(device, "_kept", 0)
    monkeypatch.setattr(device, "_set_malloc_options", lambda *options: kept.append(options[1][1]))
    for most in (16 << 20, 8 << 20, 16 << 20):
        device.keep_freed_memory(most)
    device.keep_freed_memory()
    device.keep_freed_memory(16 << 20)
    assert kept == [16 << 20, 2**31 - 1]


def test_return_freed_memory_overrides_later_keep_freed_memory(monkeypatch):
    set_to = []
    monkeypatch.setattr(device, "_kept", 0)
    monkeypatch.setattr(device, "_set_malloc_options", lambda *options: set_to.append(options[1][1]))
    device.return_freed_memory()
    device.keep_freed_memory(16 << 20)  # as an engine does
    assert set_to == [128 << 10]


@pytest.mark.parametrize("has_driver", [False, True])
def test_pytorch_is_imported_to_find_a_gpu_only_where_its_driver_is(monkeypatch, has_driver):
    def load(name):
        if not has_driver:
            raise OSError(name)

    class Missing:
        asked: ClassVar[list[str]] = []

        @classmethod
        def find_spec(cls, name, *_):
            if name == "torch":
                cls.asked.append(name)
                raise ModuleNotFoundError(name, name=name)

    monkeypatch.setattr(device.ctypes, "CDLL", load)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", [Missing, *sys.meta_path])
    assert resolve_device() == "cpu"
    assert bool(Missing.asked) == has_driver
    message = "needs PyTorch, which is not installed: pip" if has_driver else "is not available: this machine has no"
    with pytest.raises(ClearheadError, match=f"^device 'cuda' {message}"):
        resolve_device("cuda")


def test_a_gpu_is_chosen_where_pytorch_finds_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [resolve_device(name) for name in ("auto", "cuda", "cuda:1", "cpu")] == ["cuda", "cuda", "cuda:1", "cpu"]
    with pytest.raises(DeviceError, match=r"^device 'cuda:2' is not available: this machine has cuda:0, cuda:1; use"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cpu:0", "mps", "", None, 0])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(DeviceError, match=re.escape(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N")):
        resolve_device(name)
