"""Settings of a very small run, and runs that end before their first step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from small_runs import tiny_settings, write_numbers


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Write the corpus and return a function from changes, section by section, to nested settings of a run on it."""
    write_numbers(tmp_path / "numbers.tsv")
    return lambda **changes: tiny_settings(tmp_path, changes)


@pytest.fixture
def packed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs on the CPU take packed batches, without a compiler."""
    from clearhead.training import plan, steps
    from clearhead.training.packed_step import PackedStepper

    class Uncompiled(PackedStepper):
        def __init__(self, *parts: Any, is_compiled: bool) -> None:
            super().__init__(*parts, is_compiled=False)

    for module in (steps, plan):
        monkeypatch.setattr(module, "is_packed", lambda *_: True)
    monkeypatch.setattr(steps, "has_triton", lambda: True)
    monkeypatch.setattr(steps, "PackedStepper", Uncompiled)


class Settled(Exception):
    """In the place of the first step of a run."""


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that starts a run as `train_from_values` does, and returns it before its first step.

    Its text is prepared and its settings are saved.
    """
    from clearhead.training.loop import Loop
    from clearhead.training.run import train_from_values

    def start(values: dict[str, Any], *, fresh: bool = False) -> Path:
        with monkeypatch.context() as patch:
            patch.setattr(Loop, "begin", Mock(side_effect=Settled))
            with pytest.raises(Settled):
                train_from_values(values, fresh=fresh)
        return Path(values["out"])

    return start
