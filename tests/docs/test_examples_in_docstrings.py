"""Every example in a docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch

import clearhead

CORE = "clearhead.kernels._core"
"""A library in C, which Python does not import."""
MODULES = [info.name for info in pkgutil.walk_packages(clearhead.__path__, "clearhead.") if info.name != CORE]


@pytest.mark.parametrize("name", ["clearhead", *MODULES])
def test_docstring_examples(name):
    results = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
    assert results.failed == 0
