"""What a device is called, which one and how many threads are used, and what becomes of freed memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from clearhead.errors import ClearheadError, ConfigError, DeviceError
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


def run(program, **environment):
    """Return what a Python process prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "", **environment}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_num_threads_is_the_same_with_and_without_pytorch():
    program = "from clearhead.runtime import device; print(device.num_threads(), 'torch' in sys.modules)"
    with_pytorch = run(f"import sys, torch; {program}")
    assert run(f"import sys; {program}") == with_pytorch.replace("True", "False")


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2"])
def test_impossible_numbers_of_threads_are_refused(count):
    before = device.num_threads()
    with pytest.raises(ConfigError, match="a whole number of 1 or more, not"):
        device.set_num_threads(count)
    assert device.num_threads() == before


def test_threads_that_were_set_before_pytorch_was_imported_are_its_own_too():
    program = (
        "from clearhead.runtime import device; device.usable_cpus = lambda: 8; device.set_num_threads(1);"
        "first = device.num_threads(); import torch; print(first, device.num_threads(), torch.get_num_threads())"
    )
    assert run(program) == "1 1 1"


def test_a_process_without_pytorch_forks_and_keeps_its_threads():
    program = (
        "import os, sys; from clearhead.runtime import device; device.usable_cpus = lambda: 8;"
        "device.set_num_threads(3); child = os.fork();"
        "(os._exit(0 if (device.num_threads(), 'torch' in sys.modules) == (3, False) else 1) if child == 0 else None);"
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
        "import os, sys, threading; from clearhead.decoding import sentence; from clearhead.runtime import device;"
        "device.usable_cpus = lambda: 8; device.openmp_threads = lambda: 2; device._has_driver = lambda: False;"
        "threading.Thread(target=__import__, args=['torch']).start();\n"
        "while 'torch' not in sys.modules: pass\n"
        "print(device.num_threads(), device.num_gpus(), sentence._out_of_memory() == (MemoryError,));"
        "child = os.fork();"
        "(os._exit(device.num_threads()) if child == 0 else None);"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]));"
        "device.set_num_threads(5); print(device.num_threads(), len(sentence._out_of_memory()))"
    )
    assert run(program, PYTHONPATH=str(tmp_path)).split("\n") == ["2 0 True", "2", "5 2"]


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
