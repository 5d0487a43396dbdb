from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

# The programs that write pages.
sys.path += [str(Path(__file__).parents[2] / "docs"), str(Path(__file__).parents[2] / "bench")]


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """Return the program that writes the generated pages."""
    return importlib.import_module("generate")


@pytest.fixture(scope="session")
def build_tour() -> ModuleType:
    """Return the program that writes the tour as a page."""
    return importlib.import_module("build_tour")


@pytest.fixture(scope="session")
def fonts() -> None:
    """Let matplotlib, where it is installed, list the fonts of the system, which it does once and keeps.

    Else the first process to draw does it, and says on stderr that it takes a moment if that is over five seconds.
    """
    if importlib.util.find_spec("matplotlib") is not None:
        importlib.import_module("matplotlib.font_manager")
