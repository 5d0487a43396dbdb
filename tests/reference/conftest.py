"""Directories of models as other libraries publish them, each made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from published import Published


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Published]:
    """Return a function from the name of a case to its directory, for reading, which is made when first asked for."""
    from published import FORMS, PUBLISHED

    @cache
    def find(name: str) -> Published:
        directory = tmp_path_factory.mktemp("published") / name.replace(" ", "-")
        if name in FORMS:
            base, change = FORMS[name]
            shutil.copytree(find(base).directory, directory)
            change(directory)
            return replace(find(base), directory=directory, is_converted=False)
        directory.mkdir()
        torch.manual_seed(1)
        return PUBLISHED[name](directory)

    return find
