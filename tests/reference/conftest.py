"""Directories of models as other libraries publish them, and what our command makes of them, each made once."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from filelock import FileLock

if TYPE_CHECKING:
    from published import Published


# Searches and conversions of the benchmarks, which are no part of the package.
sys.path.append(str(Path(__file__).parents[2] / "bench"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that all processes of this session share."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def directories(made_once: Path) -> Callable[[str], Published]:
    """Return a function from the name of a case to its directory, for reading, which is made when first asked for."""
    from published import FORMS, PUBLISHED

    def make(name: str, directory: Path) -> Published:
        if name in FORMS:
            base, change = FORMS[name]
            shutil.copytree(find(base).directory, directory)
            change(directory)
            return replace(find(base), directory=directory, is_converted=False)
        directory.mkdir()
        torch.manual_seed(1)
        return PUBLISHED[name](directory)

    @cache
    def find(name: str) -> Published:
        return once(made_once / name.replace(" ", "-"), lambda directory: make(name, directory))

    return find


@pytest.fixture
def layout(request: pytest.FixtureRequest, directories: Callable[[str], Published], tmp_path: Path) -> Published:
    """Return a copy of a published directory, named by the parameter, that may be changed."""
    published = directories(request.param)
    return replace(published, directory=Path(shutil.copytree(published.directory, tmp_path / "theirs")))


@pytest.fixture(scope="session")
def imports(directories: Callable[[str], Published], made_once: Path) -> Callable[[str], tuple[Path, str]]:
    """Return a function from the name of a case to the model that the command makes of it, and what it says."""
    from published import import_it

    def find(name: str) -> tuple[Path, str]:
        published = directories(name)
        return once(made_once / f"{name.replace(' ', '-')}-imported", lambda path: (path, import_it(published, path)))

    return find


def once(path: Path, make: Callable[[Path], Any]) -> Any:
    """Let the first process that asks make a directory; return what it got from making it."""
    result = path.with_name(f"{path.name}.result")
    with FileLock(path.with_name(f"{path.name}.lock")):
        if not result.exists():
            shutil.rmtree(path, ignore_errors=True)  # what an attempt that failed left
            result.write_bytes(pickle.dumps(make(path)))
        return pickle.loads(result.read_bytes())
