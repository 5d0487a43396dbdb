"""The command itself, in this process."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from clearhead.cli import main


def clearhead(*arguments: object) -> int:
    """Run the command line as the console entry does, and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main.run([str(argument) for argument in arguments])
    code = ended.value.code
    assert code is None or isinstance(code, int)
    return code or 0


def run(*arguments: object) -> str:
    """Run the command, and return what it said; raises what it ended with, if that is not the end of the program."""
    result = CliRunner().invoke(main.app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output
