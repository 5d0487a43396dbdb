from __future__ import annotations

import importlib
import importlib.util

import pytest


@pytest.fixture(scope="session")
def fonts() -> None:
    """Let matplotlib, where it is installed, list the fonts of the system, which it does once and keeps.

    Else the first process to draw does it, and says on stderr that it takes a moment if that is over five seconds.
    """
    if importlib.util.find_spec("matplotlib") is not None:
        importlib.import_module("matplotlib.font_manager")
