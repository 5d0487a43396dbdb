"""The command itself, in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from clearhead.cli.main import app


def run(*arguments: object) -> str:
    """Run the command, and return what it said; raises what it ended with, if that is not the end of the program."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output
