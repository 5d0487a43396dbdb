"""What a device is called, and what becomes of freed memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearhead.runtime.device import device_name


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
@pytest.mark.parametrize("returns", [True, False])
def test_freed_memory_goes_back_to_the_system_where_it_is_asked_for(returns):
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
