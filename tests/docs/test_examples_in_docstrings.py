"""Every example in a docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import clearhead

CORE = "clearhead.kernels._core"
"""A library in C, which Python does not import."""
MODULES = [info.name for info in pkgutil.walk_packages(clearhead.__path__, "clearhead.") if info.name != CORE]
WITH_EXAMPLES = [name for name in ["clearhead", *MODULES] if ">>> " in Path(find_spec(name).origin).read_text("utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples(name):
    results = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
    assert results.failed == 0
    assert results.attempted > 0
