"""What a device is called."""

from __future__ import annotations

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
