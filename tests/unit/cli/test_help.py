"""The help of the commands: panels, paragraphs and examples."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from clearhead.cli.help import MOST_WITHOUT_PANELS, PANELS
from clearhead.cli.main import app, spread_values


def commands(group: typer.core.TyperGroup) -> Iterator[typer.core.TyperCommand]:
    for command in group.commands.values():
        if isinstance(command, typer.core.TyperGroup):
            yield from commands(command)
        else:
            yield command


COMMANDS = [*commands(typer.main.get_command(app))]


@pytest.fixture
def shown(monkeypatch) -> str:
    """The help of `translate` on a terminal of 200 columns."""
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner().invoke(app, ["translate", "--help"]).stdout


def test_panels_name_options_that_exist():
    flags = {flag for command in COMMANDS for parameter in command.params for flag in parameter.opts}
    assert [flag for panel in PANELS.values() for flag in panel.split() if flag not in flags] == []


def test_only_commands_with_many_options_have_panels():
    with_panels = {one.name for one in COMMANDS if any(parameter.rich_help_panel for parameter in one.params)}
    assert with_panels == {one.name for one in COMMANDS if len(one.params) > MOST_WITHOUT_PANELS}
    assert {"translate", "train", "check"} <= with_panels < {one.name for one in COMMANDS}


def test_translate_shows_its_panels_from_the_basic_options_on(shown):
    assert re.findall(r"─ (\w[\w ]*\w) ─", shown) == [
        *("Arguments", "Options", "Search", "Terms and memory", "Documents", "Speed", "More")
    ]


def test_translate_begins_with_examples_and_paragraphs_fill_the_terminal(shown):
    usage, title, examples, text = (part.strip() for part in re.split(r"\n\s*\n", shown.split("╭")[0].strip()))
    assert usage.startswith("Usage")
    assert title == "Translate text line by line, or documents."
    assert [line.split()[:2] for line in examples.splitlines()] == [["Examples:"], *3 * [["clearhead", "translate"]]]
    assert len(text.splitlines()[0]) > 150


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_shows_three_examples_that_it_understands(command):
    group = typer.main.get_command(app)
    _, examples, *_ = command.help.split("\n\n")
    title, *lines = examples.splitlines()
    assert (title, len(lines)) == ("Examples:", 3)
    used = []
    for line in lines:
        program, *arguments = shlex.split(re.split("[<>|]", line)[0])
        assert program == "clearhead"
        name, *arguments = spread_values(arguments)
        found = group.commands[name]
        if isinstance(found, typer.core.TyperGroup):
            name, *arguments = arguments
            found = found.commands[name]
        found.make_context(name, arguments)
        used.append(name)
    assert used[0] == command.name


def test_help_is_shown_without_numpy_and_torch():
    code = (
        "import sys; from clearhead.cli.main import app, spread_values\n"
        "app(['translate', '--help'], standalone_mode=False)\n"
        "sys.exit(str([name for name in ('numpy', 'torch') if name in sys.modules] or '') or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
