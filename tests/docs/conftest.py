from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """Return the program that writes the generated pages."""
    path = Path(__file__).parents[2] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fonts() -> None:
    """Let matplotlib, where it is installed, list the fonts of the system, which it does once and keeps.

    Else the first process to draw does it, and says on stderr that it takes a moment if that is over five seconds.
    """
    if importlib.util.find_spec("matplotlib") is not None:
        importlib.import_module("matplotlib.font_manager")
