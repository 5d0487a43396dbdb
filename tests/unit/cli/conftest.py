from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from clearhead.cli.import_model import import_model
from clearhead.files import writing
from clearhead.interop import imported


@pytest.fixture
def run_command() -> Callable[..., Any]:
    """Return a function that runs one command, as `clearhead COMMAND ARGUMENTS` would, and returns its output.

    A mistake of the user is raised as it is; only `main.run` turns it into a line and an exit status.
    """

    def run(command: Callable[..., None], *arguments: object, stdin: str | bytes | None = None) -> Any:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(command)
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def reject_import(run_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that requires that the import of a directory ends with an error and writes nothing."""

    def reject(directory: Path, error: type[Exception], message: str) -> None:
        monkeypatch.chdir(tmp_path)
        before = sorted(tmp_path.iterdir())
        with pytest.raises(error, match=message):
            run_command(import_model, directory, "-o", tmp_path / "ours")
        assert sorted(tmp_path.iterdir()) == before

    return reject


@pytest.fixture
def without_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the libraries be absent that a model is compared with."""
    monkeypatch.setattr(imported.importlib.util, "find_spec", lambda name: None)


def _killed_at_flush(last: int, function: Callable[[], object]) -> int:
    """Call a function in a process that is killed in the place of its flush of such a number; return how it ended."""
    flush, done = writing._flush, itertools.count(1)

    def flush_or_die(path: Path) -> None:
        if next(done) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(path)

    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        writing._flush = flush_or_die
        function()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.fixture
def killed_at_flushes() -> Callable[..., Iterator[int]]:
    """Return a function that calls another in processes that are killed, each at a later flush of a file.

    It yields how each ended, until one comes to the end of the call: with 0.
    """

    def run(function: Callable[[], object], every: int) -> Iterator[int]:
        status, last = -1, 1
        while status:
            status = _killed_at_flush(last, function)
            assert status in (0, -signal.SIGKILL)
            yield status
            last += every

    return run
