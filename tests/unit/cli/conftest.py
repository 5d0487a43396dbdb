from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner


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
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a text file from its name and lines."""

    def write(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        return path

    return write
